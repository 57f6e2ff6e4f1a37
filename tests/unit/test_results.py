"""Results with a meaning: what they are made of, and their form in JSON."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any, Optional, Union

import pytest
from jsonschema import Draft7Validator

from duet_rpc import Edit, Goto, Image, Text
from duet_rpc.methods.schema import Unsupported
from duet_rpc.methods.signature import method_from
from duet_rpc.testing import call

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
SVG = '<?xml version="1.0"?>\n<!-- a dot -->\n<svg xmlns="http://www.w3.org/2000/svg"/>'


@pytest.mark.parametrize(
    ("result", "written"),
    [
        (Text("a"), {"duet": "text", "text": "a"}),
        (Text("a", "org-mode"), {"duet": "text", "text": "a", "mode": "org-mode"}),
        (
            Image(b"GIF89a"),
            {"duet": "image", "mime": "image/gif", "data": "R0lGODlh"},
        ),
        (
            Edit(0, 5, "x"),
            {"duet": "edit", "edits": [{"start": 0, "end": 5, "text": "x"}]},
        ),
        (
            Edit(5, 5, "x", review=True),
            {"duet": "edit", "edits": [{"start": 5, "end": 5, "text": "x"}], "review": True},
        ),
        (Goto("/a/b.py", 12), {"duet": "goto", "file": "/a/b.py", "line": 12}),
        (Goto("/a/b.py", 1, 4), {"duet": "goto", "file": "/a/b.py", "line": 1, "column": 4}),
    ],
)
def test_a_result_is_the_same_with_and_without_hint(
    result: object, written: dict[str, object]
) -> None:
    def bare():  # type: ignore[no-untyped-def]
        return result

    def listed():  # type: ignore[no-untyped-def]
        return {"all": [result]}

    def hinted() -> Any:
        return result

    hinted.__annotations__["return"] = type(result)
    assert call(bare).result == written
    assert call(listed).result == {"all": [written]}
    assert call(hinted).result == written
    schema = method_from(hinted, "hinted").returns
    Draft7Validator.check_schema(schema)
    Draft7Validator(schema).validate(written)
    assert schema["properties"]["duet"] == {"const": written["duet"]}  # type: ignore[index]


def test_hints_can_be_lists_and_alternatives() -> None:
    def edits() -> list[Edit]:
        return [Edit(0, 0, "a"), Edit(3, 4, "")]

    def either(go: bool) -> Any:
        return Goto("/a", 1) if go else "nowhere"

    def maybe(go: bool) -> Any:
        return Text("a") if go else None

    either.__annotations__["return"] = Union[str, Goto]
    maybe.__annotations__["return"] = Optional[Text]
    assert [each["duet"] for each in call(edits).result] == ["edit", "edit"]
    assert call(either, go=True).result["line"] == 1
    assert call(either, go=False).result == "nowhere"
    assert call(maybe, go=True).result["text"] == "a"
    assert call(maybe, go=False).result is None


def test_a_result_of_another_kind_is_no_result() -> None:
    def text() -> Text:
        return Goto("/a", 1)  # type: ignore[return-value]

    def image() -> Image:
        return "a.png"  # type: ignore[return-value]

    def by_hand() -> Text:
        return {"duet": "text", "text": 5}  # type: ignore[return-value]

    assert "expected Text, got Goto" in str(call(text).exception)
    assert "expected Image, got string" in str(call(image).exception)
    assert ".text: expected string, got integer" in str(call(by_hand).exception)


def test_results_are_no_parameters() -> None:
    def odd(text: Text) -> None: ...

    with pytest.raises(Unsupported, match="parameter text: Text is for results"):
        method_from(odd, "odd")


def test_results_are_values() -> None:
    for result in (Text("a"), Image(PNG), Edit(0, 1, "a"), Goto("/a", 1)):
        assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301
        assert hash(result) == hash(pickle.loads(pickle.dumps(result)))  # noqa: S301
        with pytest.raises(AttributeError, match="immutable"):
            setattr(result, "text", "b")  # noqa: B010
    assert repr(Edit(0, 1, "a")) == "Edit(start=0, end=1, text='a', review=False)"
    assert repr(Image(PNG)) == "Image(16 bytes, mime='image/png')"


# Pictures.


def test_pictures_are_recognized_and_read_from_files(tmp_path: Path) -> None:
    assert Image(PNG).mime == "image/png"
    assert Image(bytearray(b"\xff\xd8\xff\xe0")).mime == "image/jpeg"
    assert Image(b"GIF87a").mime == "image/gif"
    assert Image(SVG).mime == Image(SVG.encode()).mime == "image/svg+xml"
    assert Image(b"RIFF", mime="image/webp").mime == "image/webp"
    file = tmp_path / "a.dat"
    file.write_bytes(PNG)
    assert Image(file) == Image(str(file)) == Image(PNG)


def test_an_invalid_picture_is_refused_where_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape('Image(data, mime="image/webp")')):
        Image(b"RIFF")
    with pytest.raises(ValueError, match="begins with image/"):
        Image(PNG, mime="png")
    with pytest.raises(FileNotFoundError):
        Image(tmp_path / "no.png")
    with pytest.raises(TypeError, match="not int"):
        Image(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not PNG"):
        Image("<html></html>")


def test_a_figure_of_matplotlib_is_a_picture() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]
    from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]

    pyplot.switch_backend("agg")

    def drawn() -> Any:
        figure = Figure()
        figure.subplots().plot([1, 3, 2])
        return figure

    def of_pyplot():  # type: ignore[no-untyped-def]
        figure, axes = pyplot.subplots()
        axes.plot([1, 3, 2])
        return [figure]

    def as_image() -> Image:
        return drawn()  # type: ignore[no-any-return]

    drawn.__annotations__["return"] = Figure
    for result in (call(drawn).result, call(as_image).result, call(of_pyplot).result[0]):
        assert result["mime"] == "image/png"
        assert result["data"].startswith("iVBORw0KGgo")
    assert pyplot.get_fignums() == [], "pyplot would keep every figure"
    assert method_from(drawn, "drawn").label == "Image"


# Places and changes.


def test_a_place_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert Goto("a.py", 1).file == str(tmp_path / "a.py")
    assert Goto(Path("~/a.py"), 1).file == "/home/me/a.py"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Text(5), "Text: text must be str, not int"),  # type: ignore[arg-type]
        (lambda: Text("a", mode=1), "Text: mode must be str"),  # type: ignore[arg-type]
        (lambda: Edit(True, 1, ""), "Edit: start must be int, not bool"),
        (lambda: Edit(0, 1, None), "Edit: text must be str"),  # type: ignore[arg-type]
        (lambda: Edit(3, 2, ""), "does not hold for 3 and 2"),
        (lambda: Edit(-1, 2, ""), "does not hold for -1 and 2"),
        (lambda: Goto("", 1), "Goto: file is empty"),
        (lambda: Goto("/a", 0), "lines begin at 1"),
        (lambda: Goto("/a", 1, -1), "columns at 0"),
        (lambda: Goto("/a", "1"), "Goto: line must be int"),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_is_an_error_where_it_is_made(make: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        make()
