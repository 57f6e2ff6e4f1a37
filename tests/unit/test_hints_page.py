"""The tables of the page on type hints are true."""

from __future__ import annotations

import json
import re
import sys
import types
from typing import Any

import pytest

from duet_rpc.methods.method import Mismatch
from duet_rpc.methods.schema import shape_of
from tests.support import TOP

PAGE = (TOP / "docs" / "hints.md").read_text()
KINDS = {"Enum", "TypedDict", "NamedTuple", "NewType", "type X = …"}
"""Of which the table has an example."""


def rows() -> list[list[str]]:
    table = PAGE.split("| hint |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
            for row in table]  # fmt: skip


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """Return what the examples of the page define."""
    module = types.ModuleType("hints_page")
    sys.modules["hints_page"] = module  # where forward references are looked up
    code = PAGE.split("```python\n")[1].split("```")[0]
    exec(code, module.__dict__)  # noqa: S102
    return module.__dict__


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_of_the_table_is_true(row: list[str], names: dict[str, Any]) -> None:
    hints, _, good, bad, expected = row
    found = 0
    for text in re.findall("`([^`]+)`", hints):
        if text in KINDS or (sys.version_info < (3, 10) and "|" in text):
            continue
        hint = eval(text, names)  # noqa: S307
        found += 1
        shape = shape_of(hint)
        shape.check(json.loads(good.strip("`")))
        if bad:
            with pytest.raises(Mismatch) as caught:
                shape.check(json.loads(bad.strip("`")))
            path = caught.value.path
            assert expected == (f"`{path}`: " if path else "") + caught.value.expected
    assert found > 0
