"""Type hints as checks and as JSON Schema."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import sys
import types
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, Optional, Tuple, TypedDict, Union

import pytest
from jsonschema import Draft7Validator

from duet_rpc.jsonrpc.jsontext import make_encoder
from duet_rpc.methods.registry import Mismatch, json_type
from duet_rpc.methods.schema import Unsupported, shape_of, to_plain


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


@dataclasses.dataclass
class Line:
    name: str
    points: List[Point] = dataclasses.field(default_factory=list)


class Movie(TypedDict, total=False):
    title: str
    year: int


class Song(TypedDict):
    title: str


@dataclasses.dataclass
class Derived:
    name: str
    length: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.name)


class Level(str, enum.Enum):
    LOW = "low"


NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
GOOD: list[tuple[Any, object, object]] = [
    (str, "a", "a"),
    (int, 5, 5),
    (int, 10**30, 10**30),
    (float, 1.5, 1.5),
    (float, 2, 2),
    (bool, True, True),
    (None, None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (object, 1, 1),
    (list, [1, "a"], [1, "a"]),
    (List[int], [1, 2], [1, 2]),
    (list[list[str]], [["a"], []], [["a"], []]),
    (tuple, [1, 2], (1, 2)),
    (Tuple[int, ...], [1, 2, 3], (1, 2, 3)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (dict, {"a": 1}, {"a": 1}),
    (Dict[str, int], {"a": 1}, {"a": 1}),
    (Literal["a", 1, None], 1, 1),
    (Literal[True], True, True),
    (Color, "red", Color.RED),
    (Size, 2, Size.LARGE),
    (Optional[int], None, None),
    (Optional[int], 3, 3),
    (Union[int, str, None], "x", "x"),
    (Point, {"x": 1}, Point(1)),
    (Line, {"name": "l", "points": [{"x": 1, "y": 2}]}, Line("l", [Point(1, 2)])),
    (Derived, {"name": "abc"}, Derived("abc")),
    (Level, "low", Level.LOW),
    (Annotated[List[Annotated[int, {}]], []], [1], [1]),
    (Movie, {}, {}),
    (Song, {"title": "t"}, {"title": "t"}),
    (datetime.date, "2026-01-31", datetime.date(2026, 1, 31)),
    (datetime.datetime, "2026-01-31T12:00:00Z", NOW),
    (datetime.datetime, "2026-01-31T12:00:00+00:00", NOW),
    (Path, "/a/b", Path("/a/b")),
]


@pytest.mark.parametrize(("hint", "value", "expected"), GOOD, ids=str)
def test_a_value_that_fits_is_turned_into_what_the_hint_says(
    hint: Any, value: object, expected: object
) -> None:
    shape = shape_of(hint)
    got = shape.check(value)
    assert got == expected
    assert type(got) is type(expected)
    Draft7Validator.check_schema(shape.schema)
    Draft7Validator(shape.schema).validate(value)
    assert json.loads(make_encoder(to_plain)(got)) == (
        value if not isinstance(value, str) or "Z" not in value else "2026-01-31T12:00:00+00:00"
    ) or isinstance(expected, (Point, Line, Derived))


BAD: list[tuple[Any, object, str, str, str]] = [
    (str, 1, "", "string", "integer"),
    (int, "1", "", "integer", "string"),
    (int, True, "", "integer", "boolean"),
    (int, 1.0, "", "integer", "number"),
    (float, True, "", "number", "boolean"),
    (float, "1", "", "number", "string"),
    (bool, 1, "", "boolean", "integer"),
    (bool, None, "", "boolean", "null"),
    (None, 0, "", "null", "integer"),
    (List[int], {"a": 1}, "", "array", "object"),
    (List[int], [1, 2, "x"], "[2]", "integer", "string"),
    (List[List[int]], [[1], [2, None]], "[1][1]", "integer", "null"),
    (tuple[int, str], [1], "", "array of 2", "array of 1"),
    (tuple[int, str], [1, 2], "[1]", "string", "integer"),
    (Dict[str, int], [], "", "object", "array"),
    (Dict[str, int], {"a": 1, "b": "x"}, "b", "integer", "string"),
    (Dict[str, int], {"a b": "x"}, '["a b"]', "integer", "string"),
    (Literal["a", "b"], "c", "", "one of a, b", "c"),
    (Literal["a", "b"], "x" * 100, "", "one of a, b", "x" * 80),
    (Literal[1], True, "", "one of 1", "boolean"),
    (Literal[1], [], "", "one of 1", "array"),
    (Color, "green", "", "one of red, blue", "green"),
    (Size, 1.0, "", "one of 1, 2", "number"),
    (Optional[int], "x", "", "integer or null", "string"),
    (Union[int, List[int]], [1, "x"], "[1]", "integer", "string"),
    (Point, {}, "x", "integer", "missing"),
    (Point, {"x": 1, "z": 2}, "z", "no member of this name", "integer"),
    (Line, {"name": "l", "points": [{"x": 1}, {"x": "1"}]}, "points[1].x", "integer", "string"),
    (Song, {}, "title", "string", "missing"),
    (Movie, {"year": "x"}, "year", "integer", "string"),
    (datetime.date, "31.1.2026", "", "date such as 2026-01-31", "string"),
    (datetime.datetime, "noon", "", "date and time such as 2026-01-31T12:00:00Z", "string"),
    (Path, 5, "", "path", "integer"),
]


@pytest.mark.parametrize(("hint", "value", "path", "expected", "received"), BAD, ids=str)
def test_a_value_that_does_not_fit_is_named_with_its_path(
    hint: Any, value: object, path: str, expected: str, received: str
) -> None:
    with pytest.raises(Mismatch) as caught:
        shape_of(hint).check(value)
    mismatch = caught.value
    assert (mismatch.path, mismatch.expected, mismatch.received) == (path, expected, received)


def test_the_check_and_the_schema_agree() -> None:
    values = [1, 1.5, "a", "red", True, None, [], [1], {}, {"x": 1}, {"title": "t"}, {"a": "b"}]
    for hint, _, _ in GOOD:
        shape = shape_of(hint)
        if "format" in shape.schema or shape.name == "path":
            continue
        for value in values:
            try:
                shape.check(value)
                fits = True
            except Mismatch:
                fits = False
            assert Draft7Validator(shape.schema).is_valid(value) == fits, (hint, value)


@pytest.mark.parametrize(
    "hint", [set, bytes, Dict[int, str], complex, Literal[b"x"], Union[int, set], List[bytes]]
)
def test_a_hint_without_a_form_in_json_is_refused(hint: Any) -> None:
    with pytest.raises(Unsupported):
        shape_of(hint)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing has no NotRequired")
@pytest.mark.parametrize("head", ["", "from __future__ import annotations\n"])
def test_members_that_need_not_be_there_say_so_one_by_one(head: str) -> None:
    text = (
        "import typing\n"
        "class Part(typing.TypedDict):\n    a: int\n    b: typing.NotRequired[str]\n"
        "class Whole(Part, total=False):\n    c: typing.Required[int]\n    d: int\n"
    )
    names: dict[str, Any] = {"__name__": "made_here"}
    sys.modules["made_here"] = types.ModuleType("made_here")  # where hints are looked up
    sys.modules["made_here"].__dict__.update(names)
    exec(head + text, sys.modules["made_here"].__dict__)  # noqa: S102
    shape = shape_of(sys.modules["made_here"].Whole)
    assert shape.schema["required"] == ["a", "c"]
    assert shape.check({"a": 1, "c": 2}) == {"a": 1, "c": 2}
    with pytest.raises(Mismatch) as caught:
        shape.check({"a": 1, "b": 3, "c": 2})
    assert (caught.value.path, caught.value.expected) == ("b", "string")
    del sys.modules["made_here"]


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        (List[str], "array of string"),
        (Optional[int], "integer or null"),
        (Literal["a", "b"], "a|b"),
        (Dict[str, float], "object of number"),
        (Point, "Point"),
        (tuple[int, str], "[integer, string]"),
        (list, "array"),
    ],
)
def test_a_shape_has_a_name_for_people(hint: Any, name: str) -> None:
    assert shape_of(hint).name == name


def test_results_beyond_json_are_turned_into_it() -> None:
    value = {
        "point": Point(1),
        "color": Color.RED,
        "size": Size.SMALL,
        "when": datetime.date(2026, 1, 31),
        "where": Path("a/b"),
        "pair": (1, 2),
    }
    assert json.loads(make_encoder(to_plain)(value)) == {
        "point": {"x": 1, "y": 0.5},
        "color": "red",
        "size": 1,
        "when": "2026-01-31",
        "where": "a/b",
        "pair": [1, 2],
    }
    with pytest.raises(TypeError, match="a value of type set has no form in JSON"):
        make_encoder(to_plain)({"a": {1}})


def test_json_types_have_their_names() -> None:
    values: list[object] = [None, True, 1, 1.5, "a", [], {}]
    names = ["null", "boolean", "integer", "number", "string", "array", "object"]
    assert [json_type(value) for value in values] == names
