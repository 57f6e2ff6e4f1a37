"""The manual is true: every command it shows is run, every file loaded, every text compared."""

from __future__ import annotations

import ast
import doctest
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from duet_rpc.config.files import load
from duet_rpc.environments import script
from duet_rpc.methods.declare import declared
from duet_rpc.methods.signature import method_of
from tests.documents import (
    PAGES,
    Block,
    blocks_of,
    commands_in,
    is_shown,
    missing_programs,
    run,
    save,
)
from tests.support import PYZ, TOP

LANGUAGES = {"console", "elisp", "file", "json", "python", "sh", "text", "toml"}
BLOCKS = {path: blocks_of(path) for path in PAGES}
ALL = [block for blocks in BLOCKS.values() for block in blocks]
NOT_RUN = 7
"""How many blocks may be only shown: each one is a decision."""

MESSAGES = {
    "words.py:3: sort_words: result must be one of message, insert, …": (
        "from duet_rpc import command\n\n@command(result='box')\ndef sort_words(text: str): ...\n",
        "duet-rpc list",
    ),
    "words.py:12: count: parameter x: the hint complex has no form in JSON; …": (
        "from duet_rpc import method" + "\n" * 11 + "@method\ndef count(x: complex): ...\n",
        "duet-rpc list",
    ),
    "order.items[1].price: expected greater than 0": (
        "from duet_rpc import method\nfrom pydantic import BaseModel, Field\n"
        "class Item(BaseModel):\n    price: float = Field(gt=0)\n"
        "class Order(BaseModel):\n    items: list[Item]\n"
        "@method\ndef buy(order: Order): ...\n",
        """duet-rpc call buy '{"order": {"items": [{"price": 1.0}, {"price": 0.0}]}}'""",
    ),
    "returned by words.py:12: .items[3].name: expected string, got integer": (
        "from dataclasses import dataclass\nfrom duet_rpc import method\n\n\n\n"
        "@dataclass\nclass Item:\n    name: str\n@dataclass\nclass Order:\n    items: list[Item]\n"
        "@method\ndef order() -> Order:\n    items = [Item('a')] * 3\n"
        "    return Order([*items, Item(5)])\n",
        "duet-rpc call order",
    ),
}
"""Messages that are quoted in the middle of a text, with a file and a command that cause them."""


def all_in(language: str) -> list[Block]:
    return [block for block in ALL if block.language == language and not block.not_run]


def pages_with(*languages: str) -> list[Path]:
    shown = [block for block in ALL if block.language in languages and not block.not_run]
    return [path for path in PAGES if path.name in {block.page for block in shown}]


def test_every_block_says_what_it_is() -> None:
    assert [str(block) for block in ALL if block.language not in LANGUAGES] == []


def test_every_text_is_compared_or_says_why_not() -> None:
    texts = [block for block in ALL if block.language == "text"]
    assert [str(each) for each in texts if not each.not_run and not each.checked_by] == []
    files = [*TOP.glob("tests/*/test_*.py"), *TOP.glob("tests/emacs/*-tests.el")]
    tests = "".join(path.read_text() for path in files)
    names = {block.checked_by for block in ALL if block.checked_by}
    assert [name for name in names if not re.search(rf"(def|deftest) {name}\b", tests)] == []


def test_what_is_only_shown_is_counted() -> None:
    only_shown = [block for block in ALL if block.not_run and not block.checked_by]
    shown = [f"{block}: {block.not_run}" for block in only_shown]
    assert len(shown) <= NOT_RUN, "\n".join(shown)


@pytest.mark.parametrize("path", pages_with("console", "sh"), ids=lambda path: path.name)
def test_every_command_shown_does_what_is_shown(path: Path, tmp_path: Path) -> None:
    wrong = []
    for block in BLOCKS[path]:
        if block.file:
            save(block, tmp_path)
        if block.not_run or missing_programs(block):
            continue
        if block.language == "sh":
            done = run(block.code, tmp_path)
            if done.returncode:
                wrong.append(f"{block}: exit code {done.returncode}: {done.stdout}")
        elif block.language == "console":
            for command, shown in commands_in(block):
                output = run(command, tmp_path).stdout
                if not is_shown(output, shown, numbers_vary=bool(block.numbers)):
                    wrong.append(f"{block}: $ {command}\n{output}\n-- but the page shows:\n{shown}")
    assert not wrong, "\n\n".join(wrong)


def quoted_messages() -> list[str]:
    """Return what looks like a message in the middle of a text: a place, a colon and words."""
    texts = [re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S) for path in PAGES]
    spans = [" ".join(span.split()) for text in texts for span in re.findall("`([^`]+)`", text)]
    return [span for span in spans if re.match(r"[a-z][\w.\[\]: ]*: \w+\W+\w+", span)]


def test_every_message_in_a_text_is_compared() -> None:
    """Those that Emacs shows are compared there, by `duet-rpc-test-quoted`."""
    lisp = "".join(path.read_text() for path in (TOP / "tests" / "emacs").glob("*-tests.el"))
    in_emacs = re.findall(r'duet-rpc-test-quoted \S+ "(.*?)"', lisp)
    found = quoted_messages()
    assert set(MESSAGES) <= set(found)
    assert [each for each in found if each not in MESSAGES
            and not each.startswith(tuple(in_emacs))] == []  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_in_a_text_is_the_real_one(message: str, tmp_path: Path) -> None:
    code, command = MESSAGES[message]
    save(Block("", 0, "file", code, "~/.config/duet-rpc/methods/words.py"), tmp_path)
    output = run(command, tmp_path).stdout
    assert is_shown(output, f"…\n…{message}…\n…"), output


def test_the_frame_on_the_page_about_the_wire_is_answered(tmp_path: Path) -> None:
    (block,) = [each for each in ALL if each.page == "wire.md" and each.language == "text"]
    frame = block.code.replace("\n", "").replace("\\r\\n", "\r\n").encode()
    done = subprocess.run(
        [sys.executable, PYZ, "rpc"], input=frame, capture_output=True, timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert json.loads(done.stdout.split(b"\r\n\r\n")[1])["result"].keys() == {"version"}


def test_the_layout_of_the_design_page_is_true() -> None:
    (block,) = [each for each in ALL if each.page == "design.md" and each.checked_by]
    top = ""
    missing = []
    for indent, name in re.findall(r"^(  )?([\w.]+/?)(?:  |$)", block.code, re.M):
        top = top if indent else ""
        missing += [] if (TOP / top / name).exists() else [name]
        top = top or name
    assert missing == []
    parts = {path.parent.name for path in (TOP / "duet_rpc").glob("*/__init__.py")}
    assert [name for name in parts if f"  {name}/" not in block.code] == []


@pytest.mark.parametrize("path", pages_with("python"), ids=lambda path: path.name)
def test_every_python_block_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the blocks of a page as one module; then check its methods and run its tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where forward references are looked up
    names: dict[str, Any] = module.__dict__
    declared.clear()
    runner = doctest.DocTestRunner()
    for block in BLOCKS[path]:
        if block.language not in ("python", "file") or block.not_run:
            continue
        if block.file:
            save(block, tmp_path)
        if ">>> " in block.code:
            test = doctest.DocTestParser().get_doctest(block.code, names, str(block), None, 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names.update(test.globs)
        elif script.find_block(block.code) is not None:
            ast.parse(block.code)  # its packages are not installed here
            assert script.read(block.code, str(block)) is not None
        elif block.language == "python":
            exec(compile(block.code, str(block), "exec", dont_inherit=True), names)  # noqa: S102
    for each in declared:
        method_of(each, each.name)
    for name, test in list(names.items()):
        if name.startswith("test_"):
            test()


@pytest.mark.parametrize("block", all_in("toml"), ids=str)
def test_every_configuration_can_be_read(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(block.code)
    config = load({"DUET_RPC_CONFIG": str(file), "HOME": str(tmp_path)}, str(tmp_path))
    assert config.warnings == []


@pytest.mark.parametrize("block", all_in("json"), ids=str)
def test_every_json_block_is_json(block: Block) -> None:
    json.loads(block.code)


@pytest.mark.parametrize("emacs", os.environ.get("EMACSEN", "emacs").split())
def test_every_lisp_block_compiles_without_a_warning(emacs: str, tmp_path: Path) -> None:
    files = []
    for number, block in enumerate(all_in("elisp")):
        file = tmp_path / f"{number}-{block.page}-{block.line}.el"
        file.write_text(";; -*- lexical-binding: t -*-\n" + block.code)
        files.append(str(file))
    form = "(setq byte-compile-error-on-warn t byte-compile-docstring-max-column 200)"
    library = str(TOP / "elisp" / "duet-rpc.el")
    command = [emacs, "-Q", "--batch", "-l", library, "--eval", form]
    done = subprocess.run(
        [*command, "-f", "batch-byte-compile", *files], capture_output=True, text=True, timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_output_is_compared_line_by_line() -> None:
    assert is_shown("a 12 ms\nb", "a … ms\nb")
    assert is_shown("a\nb\nc\nd", "a\n…\nd")
    assert is_shown("a  11 ms", "a 1.2 ms", numbers_vary=True)
    assert not is_shown("a b ms", "a 1.2 ms", numbers_vary=True)
    assert not is_shown("a\nb", "a")
    assert not is_shown("a\nb", "a …")
    assert not is_shown("a.c", "abc")
