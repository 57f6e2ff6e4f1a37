"""The examples in documents and docstrings of the library are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.support import TOP

WITH_EXAMPLES = ["errors", "framing", "ids", "messages"]


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((TOP / "README.md").read_text().splitlines()) <= 200


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (TOP / "README.md").read_text()
    pages = [f"docs/{path.name}" for path in (TOP / "docs").glob("*.md")]
    assert [page for page in pages if f"({page})" not in readme] == []


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_every_example_of_a_docstring_is_true(name: str) -> None:
    module = importlib.import_module(f"duet_rpc.jsonrpc.{name}")
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_no_docstring_with_an_example_is_left_out() -> None:
    folder = TOP / "duet_rpc" / "jsonrpc"
    found = {path.stem for path in Path(folder).glob("*.py") if ">>> " in path.read_text()}
    assert found == set(WITH_EXAMPLES)
