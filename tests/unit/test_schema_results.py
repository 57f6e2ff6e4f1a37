"""Type hints as promises about results, and how results are written as JSON."""

from __future__ import annotations

import datetime
import decimal
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional, Set, Tuple

import pytest

from duet_rpc.jsonrpc.jsontext import make_encoder
from duet_rpc.methods.method import BadResult, json_type
from duet_rpc.methods.schema import to_plain
from duet_rpc.methods.signature import method_from
from tests.schema_types import (
    ID,
    Color,
    Count,
    Level,
    Limits,
    Line,
    Pair,
    Point,
    Size,
    Song,
    Tree,
    label,
)

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
