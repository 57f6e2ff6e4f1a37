"""Results with a meaning: a text with its mode, a picture, changes of a buffer, a place, a message.

In JSON each is an object whose member `duet` says which it is; every caller makes of it what it
can. Mistakes are found where the object is made, which is the line to be changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.values import Value, set_field

if TYPE_CHECKING:
    from typing import Literal, Union

    Path = Union[str, os.PathLike[str]]
    Bytes = Union[bytes, bytearray, memoryview]

TYPE = "duet"
"""The member that says which kind of result an object is."""


class Result(Value):
    """What all of them share."""

    __slots__ = ()

    def as_json(self) -> dict[str, object]:
        """Return the object that callers get, for the encoder."""
        raise NotImplementedError


class Text(Result):
    """A text that is shown as it is, in a buffer of some major mode."""

    __slots__ = ("text", "mode")  # noqa: RUF023 - the order of the constructor

    def __init__(self, text: str, mode: str | None = None) -> None:
        _check("Text", "text", text, str)
        if mode is not None:
            _check("Text", "mode", mode, str)
        set_field(self, "text", text)
        set_field(self, "mode", mode)

    text: str
    mode: str | None

    def as_json(self) -> dict[str, object]:
        """Return the object that callers get."""
        mode = {} if self.mode is None else {"mode": self.mode}
        return {TYPE: "text", "text": self.text, **mode}


class Image(Result):
    """A picture: its bytes, the text of an SVG, or the name of a file that is read now."""

    __slots__ = ("data", "mime")

    def __init__(self, data_or_path: Bytes | Path, mime: str | None = None) -> None:
        data = _read_image(data_or_path)
        found = mime or _recognize(data)
        if found is None:
            raise ValueError(
                "Image: this is not PNG, SVG, JPEG or GIF; "
                'say what it is, as in Image(data, mime="image/webp")'
            )
        _check("Image", "mime", found, str)
        if not found.startswith("image/"):
            raise ValueError(f"Image: mime is {found!r}; it begins with image/")
        set_field(self, "data", data)
        set_field(self, "mime", found)

    data: bytes
    mime: str

    def as_json(self) -> dict[str, object]:
        """Return the object that callers get."""
        return {TYPE: "image", "mime": self.mime, "data": self.data}  # in base64, as all bytes are

    def __repr__(self) -> str:
        return f"Image({len(self.data)} bytes, mime={self.mime!r})"


class Edit(Result):
    """Replace the characters from `start` to before `end` by a text.

    Positions are indexes into the text that the command was given: its `Region`, else the buffer.
    """

    __slots__ = ("start", "end", "text", "review")  # noqa: RUF023

    def __init__(self, start: int, end: int, text: str, review: bool = False) -> None:
        for name, value in (("start", start), ("end", end)):
            _check("Edit", name, value, int)
        _check("Edit", "text", text, str)
        if not 0 <= start <= end:
            raise ValueError(f"Edit: 0 <= start <= end does not hold for {start} and {end}")
        set_field(self, "start", start)
        set_field(self, "end", end)
        set_field(self, "text", text)
        set_field(self, "review", bool(review))

    start: int
    end: int
    text: str
    review: bool

    def as_json(self) -> dict[str, object]:
        """Return the object that callers get."""
        edit = {"start": self.start, "end": self.end, "text": self.text}
        return {TYPE: "edit", "edits": [edit], **({"review": True} if self.review else {})}


class Goto(Result):
    """A line of a file, counted from 1, to be visited; columns are counted from 0."""

    __slots__ = ("file", "line", "column")  # noqa: RUF023

    def __init__(self, file: Path, line: int, column: int = 0) -> None:
        name = os.fspath(file)
        _check("Goto", "file", name, str)
        _check("Goto", "line", line, int)
        _check("Goto", "column", column, int)
        if not name:
            raise ValueError("Goto: file is empty")
        if line < 1 or column < 0:
            raise ValueError(f"Goto: lines begin at 1 and columns at 0, not at {line} and {column}")
        # Whoever visits it has another working directory.
        set_field(self, "file", os.path.abspath(os.path.expanduser(name)))
        set_field(self, "line", line)
        set_field(self, "column", column)

    file: str
    line: int
    column: int

    def as_json(self) -> dict[str, object]:
        """Return the object that callers get."""
        column = {"column": self.column} if self.column else {}
        return {TYPE: "goto", "file": self.file, "line": self.line, **column}


class Message(Result):
    """A message for a model, of the user or of the assistant: what a prompt is made of."""

    __slots__ = ("role", "text")

    def __init__(self, role: Literal["user", "assistant"], text: str) -> None:
        if role not in ROLES:
            raise ValueError(f"Message: role is 'user' or 'assistant', not {role!r}")
        _check("Message", "text", text, str)
        set_field(self, "role", role)
        set_field(self, "text", text)

    role: str
    text: str

    def as_json(self) -> dict[str, object]:
        """Return the object that callers get."""
        return {TYPE: "message", "role": self.role, "text": self.text}


ROLES = ("user", "assistant")


def _check(owner: str, name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted, got = kind.__name__, type(value).__name__
        raise TypeError(f"{owner}: {name} must be {wanted}, not {got}")


# Pictures.


def _read_image(data_or_path: Bytes | Path) -> bytes:
    if isinstance(data_or_path, (bytes, bytearray, memoryview)):
        return bytes(data_or_path)
    if isinstance(data_or_path, str) and data_or_path.lstrip().startswith("<"):
        return data_or_path.encode()
    if not isinstance(data_or_path, (str, os.PathLike)):
        kind = type(data_or_path).__name__
        raise TypeError(f"Image takes bytes, the text of an SVG or a file's name, not {kind}")
    with open(os.path.expanduser(data_or_path), "rb") as file:
        return file.read()


MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
SVG_HEAD = 4096
"""How far into a file an `<svg` may stand, behind declarations and comments."""


def _recognize(data: bytes) -> str | None:
    for start, mime in MAGIC:
        if data.startswith(start):
            return mime
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_svg = text.startswith(b"<") and b"<svg" in text[:SVG_HEAD]
    return "image/svg+xml" if is_svg else None
