"""Type hints as checks and as JSON Schema."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import re
import sys
import types
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Dict,
    FrozenSet,
    Generic,
    List,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    Set,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
)

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from duet_rpc.jsonrpc.jsontext import make_encoder
from duet_rpc.mcp.tools import modern
from duet_rpc.methods.method import BadResult, Mismatch, json_type
from duet_rpc.methods.schema import Unsupported, shape_of, to_plain
from duet_rpc.methods.signature import method_from


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


T = TypeVar("T")
UserId = NewType("UserId", int)


class Pair(NamedTuple):
    left: int
    right: str = "r"


@dataclasses.dataclass
class Page(Generic[T]):
    items: List[T]
    next: Optional[T] = None


@dataclasses.dataclass
class Numbers(Page[int], Generic[T]):
    """The same variable stands for another type than in its base."""

    about: Optional[T] = None


@dataclasses.dataclass
class Tree:
    name: str
    branches: List[Tree] = dataclasses.field(default_factory=list)


class Node(TypedDict, total=False):
    value: int
    next: Optional[Node]


@dataclasses.dataclass
class Account:
    balance: int

    def __post_init__(self) -> None:
        if self.balance < 0:
            raise ValueError("a balance that is not negative")
        if self.balance == 13:
            raise TypeError


@dataclasses.dataclass(frozen=True)
class Ge:
    """What annotated_types and others have, known by its attribute."""

    ge: Any


@dataclasses.dataclass(frozen=True)
class Limits:
    gt: Any = None
    le: Any = None
    lt: Any = None
    multiple_of: Any = None
    min_length: Any = None
    max_length: Any = None
    pattern: Any = None


Short = Annotated[str, Limits(min_length=1, max_length=3)]
Count = Annotated[int, Ge(1), Limits(le=10)]
ID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")


def label(value: object) -> str:
    """Name a case; in Python 3.9 the text of a NewType has an address in it."""
    return re.sub(" at 0x[0-9a-f]+", "", str(value))


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
    (datetime.time, "12:30:00", datetime.time(12, 30)),
    (datetime.timedelta, "PT1H30M", datetime.timedelta(hours=1, minutes=30)),
    (datetime.timedelta, "-P1DT0.5S", -datetime.timedelta(days=1, seconds=0.5)),
    (datetime.timedelta, "PT0S", datetime.timedelta()),
    (datetime.timedelta, "P14D", datetime.timedelta(weeks=2)),
    (uuid.UUID, str(ID), ID),
    (decimal.Decimal, "12.50", decimal.Decimal("12.50")),
    (decimal.Decimal, "-1E+30", decimal.Decimal("-1E+30")),
    (bytes, "AP8=", b"\x00\xff"),
    (set, [1, 2], {1, 2}),
    (Set[int], [1, 2], {1, 2}),
    (FrozenSet[str], ["a"], frozenset("a")),
    (Sequence[int], [1], [1]),
    (Iterable[int], [1], [1]),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (Dict[int, str], {"1": "a", "-20": "b"}, {1: "a", -20: "b"}),
    (Dict[Color, int], {"red": 1}, {Color.RED: 1}),
    (Dict[Size, int], {"2": 1}, {Size.LARGE: 1}),
    (Dict[Literal["a", "b"], int], {"a": 1}, {"a": 1}),
    (Dict[uuid.UUID, int], {str(ID): 1}, {ID: 1}),
    (UserId, 7, 7),
    (Pair, [1, "a"], Pair(1, "a")),
    (Page[int], {"items": [1], "next": 2}, Page([1], 2)),
    (Page[Pair], {"items": [[1, "a"]], "next": None}, Page([Pair(1, "a")])),
    (Numbers[str], {"items": [1], "next": 2, "about": "x"}, Numbers([1], 2, "x")),
    (Page, {"items": ["anything"], "next": {}}, Page[Any](["anything"], {})),
    (
        Tree,
        {"name": "a", "branches": [{"name": "b", "branches": []}]},
        Tree("a", [Tree("b")]),
    ),
    (Node, {"value": 1, "next": {"next": None}}, {"value": 1, "next": {"next": None}}),
    (Count, 10, 10),
    (Short, "abc", "abc"),
    (Optional[Short], None, None),
    (Annotated[Optional[int], Ge(1)], 1, 1),
    (Annotated[Optional[int], Ge(1)], None, None),
    (Annotated[float, Limits(gt=0, lt=1)], 0.5, 0.5),
    (Annotated[float, Limits(multiple_of=0.25)], 0.75, 0.75),
    (Annotated[int, Limits(multiple_of=5)], 10, 10),
    (Annotated[List[int], Limits(min_length=1)], [1], [1]),
    (Annotated[Dict[str, int], Limits(max_length=1)], {"a": 1}, {"a": 1}),
    (Annotated[bytes, Limits(max_length=2)], "AP8=", b"\x00\xff"),
    (Annotated[str, Limits(pattern="^a+$")], "aa", "aa"),
    (Annotated[str, Limits(pattern=re.compile("b"))], "abc", "abc"),
    (Annotated[decimal.Decimal, Ge(1)], "1.0", decimal.Decimal("1.0")),
    (Annotated[datetime.date, Ge(NOW.date())], "2026-02-01", datetime.date(2026, 2, 1)),
    (T, "anything", "anything"),
    (Account, {"balance": 1}, Account(1)),
]


def test_the_tilde_of_a_path_is_expanded() -> None:
    assert shape_of(Path).check("~/b") == Path.home() / "b"


@pytest.mark.parametrize(("hint", "value", "expected"), GOOD, ids=label)
def test_a_valid_value_is_converted_to_its_hint(hint: Any, value: object, expected: object) -> None:
    shape = shape_of(hint)
    got = shape.check(value)
    assert got == expected
    assert type(got) is type(expected)
    Draft7Validator.check_schema(shape.schema)
    Draft7Validator(shape.schema).validate(value)
    Draft202012Validator.check_schema(modern(shape.schema))
    Draft202012Validator(modern(shape.schema)).validate(value)


@pytest.mark.parametrize(("hint", "value", "expected"), GOOD, ids=label)
def test_a_result_is_written_as_a_parameter_is_read(
    hint: Any, value: object, expected: object
) -> None:
    shape = shape_of(hint)
    written = json.loads(make_encoder(to_plain)(shape.dump(expected)))
    if hint is not Derived:  # which has a member that is not passed in
        assert shape.check(written) == expected
    Draft202012Validator(modern(shape.schema, closed=False)).validate(written)
    if "Z" not in str(value) and "~" not in str(value) and hint not in (Point, Movie, Derived):
        assert written == value or isinstance(expected, (Line, Point))


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
    (datetime.time, "noon", "", "time such as 12:30:00", "string"),
    (datetime.timedelta, 90, "", "duration such as PT1H30M", "integer"),
    (datetime.timedelta, "P1M", "", "duration such as PT1H30M", "string"),
    (datetime.timedelta, "PT", "", "duration such as PT1H30M", "string"),
    (datetime.timedelta, "P" + "9" * 20 + "D", "", "duration such as PT1H30M", "string"),
    (uuid.UUID, ID.hex, "", f"UUID such as {ID}", "string"),
    (decimal.Decimal, 1.5, "", 'decimal number as a string, such as "12.50"', "number"),
    (decimal.Decimal, "NaN", "", 'decimal number as a string, such as "12.50"', "string"),
    (decimal.Decimal, "1_0", "", 'decimal number as a string, such as "12.50"', "string"),
    (bytes, "a", "", "bytes in base64", "string"),
    (bytes, "é", "", "bytes in base64", "string"),
    (Set[int], [1, 1], "", "array without duplicates", "array with duplicates"),
    (Set[int], [1, "a"], "[1]", "integer", "string"),
    (set, [[1]], "", "array of hashable values", "array"),
    (Iterable[int], "ab", "", "array", "string"),
    (Mapping[str, int], {"a": ""}, "a", "integer", "string"),
    (Dict[int, str], {"x": "a"}, "x", "integer as its name", "string"),
    (Dict[int, str], {"01": "a"}, '["01"]', "integer as its name", "string"),
    (Dict[Color, int], {"green": 1}, "green", "one of red, blue as its name", "string"),
    (UserId, "7", "", "integer", "string"),
    (Pair, [], "", "array of 1 to 2", "array of 0"),
    (Pair, ["a"], "[0]", "integer", "string"),
    (Page[int], {"items": ["a"]}, "items[0]", "integer", "string"),
    (Numbers[str], {"items": [1], "about": 1}, "about", "string or null", "integer"),
    (Numbers[str], {"items": ["a"]}, "items[0]", "integer", "string"),
    (Tree, {"name": "a", "branches": [{}]}, "branches[0].name", "string", "missing"),
    (Node, {"next": {"next": 5}}, "next.next", "Node or null", "integer"),
    (Count, 0, "", "integer >= 1", "integer < 1"),
    (Count, 11, "", "integer <= 10", "integer > 10"),
    (Count, "1", "", "integer", "string"),
    (Optional[Count], 0, "", "integer >= 1", "integer < 1"),
    (Annotated[Optional[int], Ge(1)], 0, "", "integer >= 1", "integer < 1"),
    (Short, "", "", "string with at least 1 character", "string with 0 characters"),
    (Short, "abcd", "", "string with at most 3 characters", "string with 4 characters"),
    (
        List[Short],
        ["a", ""],
        "[1]",
        "string with at least 1 character",
        "string with 0 characters",
    ),
    (
        Annotated[List[int], Limits(min_length=2)],
        [1],
        "",
        "array of integer with at least 2 items",
        "array of integer with 1 item",
    ),
    (Annotated[int, Limits(multiple_of=5)], 7, "", "integer that is a multiple of 5", "integer"),
    (Annotated[str, Limits(pattern="^a+$")], "b", "", "string that matches ^a+$", "string"),
    (Annotated[decimal.Decimal, Ge(1)], "0.5", "", "decimal >= 1", "decimal < 1"),
    (
        Annotated[datetime.datetime, Ge(NOW)],
        "2026-01-31",
        "",
        f"date and time >= {NOW}",
        f"date and time < {NOW}",
    ),
    (Account, {"balance": -1}, "", "a balance that is not negative", "object"),
    (Account, {"balance": 13}, "", "TypeError", "object"),
    (Optional[Account], {"balance": -1}, "", "a balance that is not negative", "object"),
    (List[Account], [{"balance": -1}], "[0]", "a balance that is not negative", "object"),
]


@pytest.mark.parametrize(("hint", "value", "path", "expected", "received"), BAD, ids=label)
def test_an_invalid_value_is_named_with_its_path(
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
        if "format" in str(shape.schema) or "content" in str(shape.schema) or hint is set:
            continue  # of which a schema can't say all
        for value in values:
            try:
                shape.check(value)
                fits = True
            except Mismatch:
                fits = False
            assert Draft7Validator(shape.schema).is_valid(value) == fits, (hint, value)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (complex, "the hint complex has no form in JSON; use str,"),
        (Union[int, complex], "the hint complex has no form in JSON"),
        (List[range], "the hint range has no form in JSON"),
        (Page[complex], "Page[complex].items: the hint complex has no form in JSON"),
        (Dict[float, int], "a dict in JSON has strings for its keys, not float"),
        (
            Dict[Tuple[int, int], int],
            "a dict in JSON has strings for its keys, not tuple[int, int]",
        ),
        (Set[List[int]], "a set can't hold list[int], which is not hashable"),
        (Set[Point], "a set can't hold Point, which is not hashable"),
        (Literal[b"x"], "a Literal in JSON holds strings, integers, booleans or None"),
        (Annotated[str, Ge(1)], "the limit ge has no meaning for string"),
        (Annotated[Optional[str], Ge(1)], "the limit ge has no meaning for string or null"),
        (Annotated[int, Ge("a")], "the limit ge of integer must be a number"),
        (Annotated[int, Limits(min_length=1)], "the limit min_length has no meaning for integer"),
        (Annotated[Point, Limits(max_length=1)], "the limit max_length has no meaning for Point"),
        (Annotated[str, Limits(max_length="a")], "the limit max_length of string must be an int"),
        (Annotated[str, Limits(pattern="(")], "the pattern '(' can't be read: missing )"),
        (Annotated[int, Limits(pattern="a")], "a pattern has no meaning for integer"),
        (Annotated[int, Limits(multiple_of=0)], "the limit multiple_of must be a number other"),
        (Annotated[str, Limits(multiple_of=2)], "the limit multiple_of has no meaning for string"),
    ],
    ids=label,
)
def test_a_hint_without_a_form_in_json_is_refused(hint: Any, words: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(words)):
        shape_of(hint)


@pytest.mark.parametrize(
    ("hint", "limits"),
    [
        (Count, {"type": "integer", "minimum": 1, "maximum": 10}),
        (Short, {"type": "string", "minLength": 1, "maxLength": 3}),
        (
            Annotated[float, Limits(gt=0, lt=1, multiple_of=0.5)],
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.5},
        ),
        (Annotated[str, Limits(pattern="a")], {"type": "string", "pattern": "a"}),
        (Annotated[list, Limits(min_length=1)], {"type": "array", "minItems": 1}),
        (Annotated[dict, Limits(min_length=1)], {"type": "object", "minProperties": 1}),
        (Annotated[bytes, Limits(min_length=1)], {"type": "string", "contentEncoding": "base64"}),
        (
            Annotated[Optional[int], Ge(1)],
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        ),
        (Annotated[int, "how many", "and more"], {"type": "integer", "description": "how many"}),
        (
            Annotated[Optional[int], "how many"],
            {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "how many"},
        ),
        (UserId, {"type": "integer", "title": "UserId"}),
        (Set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (Path, {"type": "string", "format": "path"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (datetime.timedelta, {"type": "string", "format": "duration"}),
        (datetime.time, {"type": "string", "format": "time"}),
        (
            Dict[Color, int],
            {
                "type": "object",
                "propertyNames": {"type": "string", "enum": ["red", "blue"]},
                "additionalProperties": {"type": "integer"},
            },
        ),
        (
            Pair,
            {
                "type": "array",
                "title": "Pair",
                "items": [
                    {"type": "integer", "title": "left"},
                    {"type": "string", "title": "right"},
                ],
                "minItems": 1,
                "maxItems": 2,
            },
        ),
    ],
    ids=label,
)
def test_the_schema_says_what_the_hint_says(hint: Any, limits: dict[str, object]) -> None:
    assert shape_of(hint).schema == limits


def test_a_multiple_is_one_in_spite_of_rounding() -> None:
    assert shape_of(Annotated[float, Limits(multiple_of=0.1)]).check(0.3) == 0.3


def test_a_type_that_contains_itself_refers_to_its_definition() -> None:
    schema: Any = shape_of(Tree).schema
    assert schema["type"] == "object"
    assert schema["properties"]["branches"]["items"] == {"$ref": "#/$defs/Tree"}
    definition = schema.pop("$defs")["Tree"]
    assert definition == schema


def test_nesting_without_end_is_refused_and_not_a_crash() -> None:
    value: dict[str, Any] = {"name": "a"}
    for _ in range(sys.getrecursionlimit()):
        value = {"name": "a", "branches": [value]}
    with pytest.raises(Mismatch) as caught:
        shape_of(Tree).check(value)
    assert caught.value.expected == "less nesting"


def test_a_field_of_a_dataclass_is_described_by_its_metadata() -> None:
    said = dataclasses.field(metadata={"description": "its width"})
    made = dataclasses.make_dataclass("Box", [("width", int, said)])
    schema: Any = shape_of(made).schema
    assert schema["properties"]["width"] == {"type": "integer", "description": "its width"}


def test_an_alias_is_what_it_stands_for() -> None:
    extensions = pytest.importorskip("typing_extensions")
    shape = shape_of(extensions.TypeAliasType("Small", Annotated[int, Ge(1)]))
    assert shape.schema == {"type": "integer", "minimum": 1}
    pair = extensions.TypeAliasType("Two", Tuple[T, T], type_params=(T,))
    assert shape_of(pair[int]).check([1, 2]) == (1, 2)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement is of Python 3.12")
def test_an_alias_may_contain_itself() -> None:
    names: dict[str, Any] = {}
    exec("type Json = dict[str, Json] | list[Json] | str | int | None", names)  # noqa: S102
    shape = shape_of(names["Json"])
    assert shape.check({"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}
    with pytest.raises(Mismatch) as caught:
        shape.check({"a": [1, {"b": 1.5}]})
    assert caught.value.path == "a[1].b"
    Draft202012Validator(modern(shape.schema)).validate({"a": [1]})


# Results.

RESULTS: list[tuple[Any, object, str]] = [
    (str, 5, ": expected string, got integer"),
    (str, None, ": expected string, got null"),
    (int, True, ": expected integer, got boolean"),
    (int, 1.5, ": expected integer, got number"),
    (float, "1", ": expected number, got string"),
    (bool, 1, ": expected boolean, got integer"),
    (None, 1, ": expected null, got integer"),
    (List[int], [1, "a"], "[1]: expected integer, got string"),
    (List[int], {"a": 1}, ": expected array, got object"),
    (Tuple[int, str], (1,), ": expected array of 2, got array of 1"),
    (Tuple[int, str], (1, 2), "[1]: expected string, got integer"),
    (Dict[str, int], {"secret": "x"}, "[*]: expected integer, got string"),
    (Dict[str, Point], {"secret": Point("x")}, "[*].x: expected integer, got string"),  # type: ignore[arg-type]
    (dict, [1], ": expected object, got array"),
    (Point, Point("a"), ".x: expected integer, got string"),  # type: ignore[arg-type]
    (Point, {"y": 1.0}, ".x: expected integer, got missing"),
    (Line, Line("l", [Point(1), Point(None)]), ".points[1].x: expected integer, got null"),  # type: ignore[arg-type]
    (Color, "secret", ": expected one of red, blue, got another string"),
    (Optional[int], "a", ": expected integer or null, got string"),
    (datetime.date, "soon", ": expected date such as 2026-01-31, got string"),
    (datetime.date, 5, ": expected date, got integer"),
    (Count, 0, ": expected integer >= 1, got integer < 1"),
    (
        Annotated[bytes, Limits(max_length=1)],
        b"ab",
        ": expected base64 with at most 1 byte, got base64 with 2 bytes",
    ),
    (Set[int], [1, 1], ": expected array without duplicates, got array with duplicates"),
    (Tree, Tree("a", [Tree(5)]), ".branches[0].name: expected string, got integer"),  # type: ignore[arg-type]
    (Pair, (1, 2), "[1]: expected string, got integer"),
    (Song, {"title": 1, "x": 2}, ".title: expected string, got integer"),
]


@pytest.mark.parametrize(("hint", "value", "words"), RESULTS, ids=label)
def test_a_result_that_violates_its_hint_is_named(hint: Any, value: object, words: str) -> None:
    def function() -> Any:
        return value

    function.__annotations__["return"] = hint
    method = method_from(function, "f")
    with pytest.raises(BadResult) as caught:
        method.call(None)
    words = words[2:] if words.startswith(": ") else words
    assert str(caught.value) == f"returned by {method.place}: {words}"


@pytest.mark.parametrize(
    ("hint", "value", "written"),
    [
        (List[int], (1, 2), "[1,2]"),
        (List[int], range(2), "[0,1]"),
        (int, Size.LARGE, "2"),
        (str, Level.LOW, '"low"'),
        (str, Path("a"), '"a"'),
        (int, 1.0, "1.0"),
        (Color, "red", '"red"'),
        (datetime.date, "2026-01-31", '"2026-01-31"'),
        (Mapping[str, int], types.MappingProxyType({"a": 1}), '{"a":1}'),
        (Song, {"title": "t", "more": 1}, '{"title":"t","more":1}'),
        (Set[str], ["b", "a"], '["b","a"]'),
        (Any, {2, 10, 1}, "[1,2,10]"),
        (
            Any,
            {"a": b"\0", "b": datetime.timedelta(1), "c": decimal.Decimal("1.50")},
            '{"a":"AA==","b":"P1D","c":"1.50"}',
        ),
        (Any, [ID, datetime.time(1), Pair(1)], f'["{ID}","01:00:00",[1,"r"]]'),
    ],
    ids=label,
)
def test_a_result_may_have_any_type_with_equal_json(hint: Any, value: object, written: str) -> None:
    def function() -> Any:
        return value

    function.__annotations__["return"] = hint
    assert method_from(function, "f").call(None) == written


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing has no NotRequired")
@pytest.mark.parametrize("head", ["", "from __future__ import annotations\n"])
def test_optional_members_are_marked_one_by_one(head: str) -> None:
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
        (Set[int], "array of integer"),
        (Page[int], "Page[int]"),
        (Optional[Page[List[int]]], "Page[list[int]] or null"),
        (Pair, "[left: integer, right: string]"),
        (UserId, "integer"),
        (Count, "integer"),
        (Tree, "Tree"),
        (Path, "path"),
        (uuid.UUID, "UUID"),
        (bytes, "base64"),
        (datetime.timedelta, "duration"),
        (decimal.Decimal, "decimal"),
        (datetime.datetime, "date and time"),
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
    with pytest.raises(TypeError, match="a value of type complex has no form in JSON"):
        make_encoder(to_plain)({"a": 1j})


def test_json_types_have_their_names() -> None:
    values: list[object] = [None, True, 1, 1.5, "a", [], {}]
    names = ["null", "boolean", "integer", "number", "string", "array", "object"]
    assert [json_type(value) for value in values] == names
