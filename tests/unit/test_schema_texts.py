"""Type hints as JSON Schema and as names for people, and hints that have no form in JSON."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import re
import sys
import types
import uuid
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, Optional, Set, Tuple, Union

import pytest
from jsonschema import Draft202012Validator

from duet_rpc.mcp.tools import modern
from duet_rpc.methods.method import Mismatch
from duet_rpc.methods.schema import Unsupported, shape_of
from tests.schema_types import (
    Color,
    Count,
    Ge,
    Limits,
    Page,
    Pair,
    Point,
    Short,
    T,
    Tree,
    UserId,
    label,
)


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
