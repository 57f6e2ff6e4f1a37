"""Shapes of results with a meaning (`methods.results`), and of figures, which are pictures.

Whatever is written as such an object will do for the hint: `-> Image` takes a figure, too.
"""

from __future__ import annotations

import sys
from typing import Any

from duet_rpc.methods.method import Mismatch
from duet_rpc.methods.results import ROLES, TYPE, Edit, Goto, Image, Message, Result, Text
from duet_rpc.methods.schema.choices import literal_shape
from duet_rpc.methods.schema.containers import array_of
from duet_rpc.methods.schema.plain import plain, type_of
from duet_rpc.methods.schema.records import record_shape
from duet_rpc.methods.schema.shape import Convert, Shape, Unsupported
from duet_rpc.methods.schema.simple import SIMPLE

STRING, INTEGER, BOOLEAN, BASE64 = SIMPLE[str], SIMPLE[int], SIMPLE[bool], SIMPLE[bytes]


def meaning_shape(kind: type, is_result: bool) -> Shape | None:
    """Describe one of the classes of results, or a figure; None for any other class."""
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if figure is not None and issubclass(kind, figure):
        kind = Image
    for known, word, members, required in KINDS:
        if issubclass(kind, known):
            name = known.__name__
            if not is_result:
                raise Unsupported(f"{name} is for results, not for parameters")
            const = literal_shape([word])._replace(schema={"const": word})
            record = record_shape(name, {TYPE: const, **members}, [TYPE, *required], dict)
            return record._replace(dump=_of_kind(record, word))
    return None


def _of_kind(record: Shape, word: str) -> Convert:
    """Return a `dump` that says which result it wants where it gets another one."""

    def dump(value: Any) -> Any:
        written = plain(value)
        if not isinstance(written, dict) or written.get(TYPE) != word:
            is_other = isinstance(value, Result)
            raise Mismatch(record.name, type(value).__name__ if is_other else type_of(written))
        return record.dump(written)

    return dump


def _edits() -> Shape:
    members = {"start": INTEGER, "end": INTEGER, "text": STRING}
    return array_of(record_shape("edit", members, [*members], dict))


KINDS: tuple[tuple[type[Result], str, dict[str, Shape], list[str]], ...] = (
    (Text, "text", {"text": STRING, "mode": STRING}, ["text"]),
    (Image, "image", {"mime": STRING, "data": BASE64}, ["mime", "data"]),
    (Edit, "edit", {"edits": _edits(), "review": BOOLEAN}, ["edits"]),
    (Goto, "goto", {"file": STRING, "line": INTEGER, "column": INTEGER}, ["file", "line"]),
    (Message, "message", {"role": literal_shape([*ROLES]), "text": STRING}, ["role", "text"]),
)
"""Each class, its word in JSON, its other members, and which of them are always there."""
