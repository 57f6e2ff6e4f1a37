"""The page on commands is true, as far as Python can tell."""

from __future__ import annotations

import json
import re
import sys
import types
import typing
from typing import Any

import pytest
from jsonschema import Draft7Validator

import duet_rpc
from duet_rpc.methods import commands, results
from duet_rpc.methods.command_options import MARKS, RESULTS, read_options
from duet_rpc.methods.declare import declared
from duet_rpc.methods.schema import shape_of
from duet_rpc.methods.signature import method_of, source_in
from tests.support import TOP

PAGE = (TOP / "docs" / "commands.md").read_text()


def table(head: str) -> list[list[str]]:
    rows = PAGE.split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """Run the examples of the page, as one module."""
    module = types.ModuleType("commands_page")
    sys.modules["commands_page"] = module
    declared.clear()
    for block in code("python"):
        exec(block, module.__dict__)  # noqa: S102
    return module.__dict__


def test_the_table_has_every_source_and_its_type() -> None:
    said = {row[0].strip("`"): row[1].strip("`") for row in table("type")}
    sources = {
        name: hint.__origin__.__name__
        for name, hint in vars(commands).items()
        if typing.get_origin(hint) is typing.Annotated
    }
    assert sources == {name: kind for name, kind in said.items() if "Lisp" not in name}
    assert all(name in duet_rpc.__all__ for name in sources)


def test_the_tables_have_every_result() -> None:
    assert {row[0].strip('`"') for row in table("`result=`")[1:]} == {*RESULTS}
    classes = [row[0].strip("`").partition("(")[0] for row in table("class")]
    assert classes == [each.__name__ for each in results.Result.__subclasses__()]


def test_the_table_has_every_option() -> None:
    given: dict[str, object] = {"name": None, "key": None, "result": None, "modes": None}
    given.update(dict.fromkeys(MARKS, False))
    options = [re.findall(r"`(\w+)=(.*)`", row[0])[0] for row in table("option")]
    assert {name for name, _ in options} == set(given)
    for name, value in options:
        read_options({**given, name: eval(value)}, test_the_table_has_every_option)  # noqa: S307


def test_the_examples_can_be_loaded_and_run(names: dict[str, Any]) -> None:
    made = {each.name: method_of(each, each.name) for each in declared}
    assert {"sort_words", "export", "outline", "dot", "trim_lines", "visit_note"} == {*made}
    assert all(method.command is not None for method in made.values())
    names["test_words_are_sorted"]()
    call = names["call"]
    edits = call(names["trim_lines"], text="a  \nb\n").result
    assert [each["edits"] for each in edits] == [[{"start": 1, "end": 3, "text": ""}]]
    assert call(names["dot"]).result["mime"] == "image/svg+xml"
    assert call(names["outline"], text="a:\nb").result["text"] == "* a:"
    source = source_in(typing.get_type_hints(names["export"], include_extras=True)["file"])
    assert source is not None
    assert source.as_json() == "file"


def test_the_messages_are_those_of_the_schemas() -> None:
    _, written = map(json.loads, code("json"))
    kinds = [duet_rpc.Text, duet_rpc.Image, duet_rpc.Edit, duet_rpc.Goto]
    for each, kind in zip(written, kinds):
        Draft7Validator(shape_of(kind, is_result=True).schema).validate(each)
