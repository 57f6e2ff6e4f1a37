"""The examples in documents and docstrings of the library are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.support import TOP

WITH_EXAMPLES = ["errors", "framing", "ids", "messages"]


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((TOP / "README.md").read_text().splitlines()) <= 200


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (TOP / "README.md").read_text()
    pages = [f"docs/{path.name}" for path in (TOP / "docs").glob("*.md")]
    assert [page for page in pages if f"({page})" not in readme] == []


def test_every_example_of_the_library_page_is_true() -> None:
    path = TOP / "docs" / "jsonrpc.md"
    failed, tried = doctest.testfile(str(path), module_relative=False)
    assert tried > 25
    assert failed == 0


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


def test_the_examples_of_the_page_on_asking_are_true() -> None:
    tests = []
    for block in (TOP / "docs" / "asking.md").read_text().split("```python\n")[1:]:
        names: dict[str, Any] = {}
        exec(compile(block.split("```")[0], "asking.md", "exec"), names)  # noqa: S102
        tests += [each for name, each in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_examples_of_the_page_on_methods_are_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (TOP / "docs" / "first-steps.md").read_text().split("<!-- first method -->")[1]
    (tmp_path / "words.py").write_text(first.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    page = (TOP / "docs" / "methods.md").read_text()
    tests = []
    for block in page.split("```python\n")[1:]:
        names: dict[str, Any] = {}
        exec(compile(block.split("```")[0], "methods.md", "exec"), names)  # noqa: S102
        tests += [each for name, each in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
