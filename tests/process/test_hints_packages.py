"""Hints of other packages: annotated_types and pydantic, through real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from tests.hints import ask, tools_of

LIMITS = """
import annotated_types as at

@method
def f(
    count: Annotated[int, at.Interval(ge=1, lt=10)] = 1,
    names: Annotated[List[str], at.Len(1, 2)] = ["a"],
    word: at.LowerCase[str] = "a",
    step: Annotated[float, at.MultipleOf(0.5)] = 0.5,
    width: Annotated[float, at.Unit("m")] = 1.0,
) -> str:
    return "fine"

@method
def g(when: Annotated[str, at.Timezone(None)]) -> None: pass
"""


def test_annotated_limits_are_checked_and_in_the_schema(tmp_path: Path) -> None:
    pytest.importorskip("annotated_types")
    wrong: list[dict[str, object]] = [
        {"count": 0}, {"count": 10}, {"names": []}, {"names": ["", "", ""]}, {"word": "A"},
        {"step": 0.7},
    ]  # fmt: skip
    calls = [("f", each) for each in ({"count": 9, "word": "b", "width": 3.5}, *wrong)]
    (fine, *refused, document), log = ask(tmp_path, LIMITS, *calls, ("rpc.discover", None))
    assert fine == "fine"
    assert [each["data"]["expected"] for each in refused] == [
        "integer >= 1",
        "integer < 10",
        "array of string with at least 1 item",
        "array of string with at most 2 items",
        "string for which islower is true",
        "number that is a multiple of 0.5",
    ]
    schemas = {each["name"]: each["schema"] for each in document["methods"][-1]["params"]}
    assert schemas["count"] == {
        "type": "integer", "minimum": 1, "exclusiveMaximum": 10, "default": 1
    }  # fmt: skip
    assert (schemas["names"]["minItems"], schemas["names"]["maxItems"]) == (1, 2)
    assert "g: parameter when: Timezone of annotated_types can't be checked here" in log


MODELS = """
from datetime import date
from typing import Union
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, field_validator
from pydantic.dataclasses import dataclass

class Item(BaseModel):
    name: str
    price: Annotated[float, Field(gt=0)]
    due: Optional[date] = None
    tags: List[Union[int, Dict[str, int]]] = []

class Order(BaseModel, extra="forbid"):
    number: int = Field(alias="no", description="its number")
    items: List[Item]

    @field_validator("number")
    @classmethod
    def check(cls, value: int) -> int:
        if value == 13:
            raise ValueError("any number but 13")
        return value

class Node(BaseModel):
    value: int
    next: Optional[Node] = None

@dataclass
class Box:
    width: int

def even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number")
    return value

@method
def order(order: Order) -> Order:
    return order

@method
def orders(orders: List[Order]) -> int:
    return len(orders)

@method
def first(node: Node, count: Annotated[int, Field(ge=1, description="how many")] = 1) -> Node:
    return node

@method
def box(box: Box) -> Box:
    return box

@method
def half(number: Annotated[int, AfterValidator(even)]) -> int:
    return number // 2

@method
def name(name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=2)]) -> str:
    return name

@method
def maybe(box: Optional[Box]) -> bool:
    return box is None

@method
def lie(kind: int) -> Order:
    good = Order(no=1, items=[Item(name="a", price=1)])
    if kind == 1:
        good.items[0].price = "much"
    return [good, good, {"no": 1, "items": []}, {"no": 1}, 5][kind]

@method
def loose():
    return {"order": Order(no=1, items=[]), "box": Box(1)}

@dataclasses.dataclass
class Plain:
    x: int = Field(ge=1)

@method
def older(plain: Plain) -> int:
    return plain.x

@method
def old(x: int = Field(1, ge=0)) -> int:
    return x
"""


def test_models_of_pydantic_are_checked_and_described_by_pydantic(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    item = {"name": "a", "price": 1.5, "due": "2026-01-31", "tags": []}
    good = {"no": 1, "items": [item]}
    calls: list[tuple[str, object]] = [
        ("order", [good]),
        ("order", [{"no": "1", "items": []}]),
        ("order", [{"no": 1, "items": [item, {**item, "price": 0}]}]),
        ("order", [{"no": 13, "items": []}]),
        ("order", [{"items": []}]),
        ("order", [{"no": 1, "items": [], "more": 1}]),
        ("orders", [[good, {**good, "items": [{**item, "due": 5}]}]]),
        ("order", [{"no": 1, "items": [{**item, "tags": [1, {"a": None}]}]}]),
        ("first", [{"value": 1, "next": {"value": 2}}]),
        ("first", {"node": {"value": 1}, "count": 0}),
        ("box", [{"width": 1}]),
        ("box", [{"width": "1"}]),
        ("half", [4]),
        ("half", [3]),
        ("loose", None),
        *[("lie", [kind]) for kind in range(5)],
        ("rpc.discover", None),
    ]
    results, log = ask(tmp_path, MODELS, *calls)
    assert results[0] == good
    wrong = [(each["data"]["param"], each["data"]["expected"]) for each in results[1:7]]
    assert wrong == [
        ("order.no", "a valid integer"),
        ("order.items[1].price", "greater than 0"),
        ("order.no", "any number but 13"),
        ("order.no", "a value"),
        ("order.more", "no member of this name"),
        ("orders[1].items[0].due", "a valid date"),
    ]
    assert [each["data"]["received"] for each in results[1:6]] == [
        "string", "integer", "integer", "missing", "integer",
    ]  # fmt: skip
    assert results[7]["data"]["param"] == "order.items[0].tags[1].a", "without a Union's own tags"
    assert results[8] == {"value": 1, "next": {"value": 2, "next": None}}
    assert results[9]["data"]["expected"] == "integer >= 1"
    assert results[10] == {"width": 1}
    assert results[11]["data"]["param"] == "box.width"
    assert results[12] == 2
    assert results[13]["data"]["expected"] == "an even number"
    assert results[14] == {"order": {"no": 1, "items": []}, "box": {"width": 1}}
    assert results[15] == {"no": 1, "items": [{"name": "a", "price": 1.0, "due": None, "tags": []}]}
    assert results[16]["code"] == -32603
    assert ".items[0].price: expected a valid number, got string" in log
    assert results[17] == {"no": 1, "items": []}
    assert results[18]["code"] == results[19]["code"] == -32603
    assert ".items: expected a value, got missing" in log
    assert (
        "old: parameter x: a Field can't be a default here; write Annotated[..., Field(...)] ="
        in log
    )

    assert "older: parameter plain: Plain.x: a Field can't be a default here" in log

    document = results[-1]
    for method in document["methods"]:
        for param in [*method["params"], method["result"]]:
            Draft7Validator.check_schema({**param["schema"], "components": document["components"]})
    tools, _ = tools_of(tmp_path, MODELS)
    schema = tools["order"]["inputSchema"]
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate({"order": good})
    assert schema["properties"]["order"]["properties"]["no"]["description"] == "its number"
    Draft202012Validator(tools["order"]["outputSchema"]).validate(results[0])
    Draft202012Validator(tools["first"]["outputSchema"]).validate(results[8])
    assert tools["first"]["outputSchema"]["type"] == "object"
    count = tools["first"]["inputSchema"]["properties"]["count"]
    assert count == {"type": "integer", "minimum": 1, "default": 1, "description": "how many"}


def test_what_pydantic_says_reads_like_our_own_words(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    calls: list[tuple[str, object]] = [("name", [" ab "]), ("name", [" a "]), ("maybe", [5])]
    (stripped, short, wrong), _ = ask(tmp_path, MODELS, *calls)
    assert stripped == "ab"
    assert short["data"]["expected"] == "at least 2 characters"
    assert wrong["data"] == {"param": "box", "expected": "Box or null", "received": "integer"}
