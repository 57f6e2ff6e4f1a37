"""Methods in Python: from a file to a reply, through the real daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.method_files import SIX, WORDS, ask, write
from tests.support import WITH_METHODS, request, run


def test_methods_can_be_called_by_name_and_position(tmp_path: Path) -> None:
    path = write(tmp_path, WORDS)
    (by_name, by_position, shout, shout_more), _ = ask(
        tmp_path,
        request(1, "word_count", {"text": "b a b", "top": 1})
        + request(2, "word_count", ["b a b"])
        + request(3, "text.shout", {"text": "hey", "marks": 3})
        + request(4, "text.shout", ["hey", 2]),
        "--methods",
        str(path),
    )
    assert by_name == {"b": 2}
    assert by_position == {"b": 2, "a": 1}
    assert shout == "HEY!!!"
    assert shout_more == "HEY!!"


def test_the_signature_is_the_description(tmp_path: Path) -> None:
    path = write(tmp_path, WORDS)
    (listed, described, document), _ = ask(
        tmp_path,
        request(1, "listMethods") + request(2, "describeMethods") + request(3, "rpc.discover"),
        f"--methods={path}",
    )
    names = [each["name"] for each in listed]
    assert names == [*SIX, "reloadMethods", "word_count", "text.shout"]
    assert listed[-2]["description"] == "Count the words of a text."
    assert listed[-1]["description"] == ""
    assert described[-2:] == [
        {
            "name": "word_count",
            "params": ["text: string", "top: integer = 10"],
            "returns": "object of integer",
        },
        {
            "name": "text.shout",
            "params": ["text: string", "marks: integer = 1"],
            "returns": "string",
        },
    ]
    counted = document["methods"][-2]
    assert counted["summary"] == "Count the words of a text."
    assert "The longer story." in counted["description"]
    assert counted["params"] == [
        {"name": "text", "required": True, "schema": {"type": "string"}},
        {"name": "top", "required": False, "schema": {"type": "integer", "default": 10}},
    ]
    assert counted["result"]["schema"] == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    assert counted["x-source"] == {"file": str(path), "line": 5}
    assert "x-source" not in document["methods"][0]


@pytest.mark.parametrize(
    ("params", "data"),
    [
        ({"text": 1}, {"param": "text", "expected": "string", "received": "integer"}),
        ({"text": "a", "top": "3"}, {"param": "top", "expected": "integer", "received": "string"}),
        (
            {"text": "a", "top": True},
            {"param": "top", "expected": "integer", "received": "boolean"},
        ),
        ({}, {"param": "text", "expected": "string", "received": "missing"}),
        (
            {"text": "a", "tpo": 3},
            {"param": "tpo", "expected": "no parameter of this name", "received": "integer"},
        ),
        (
            ["a", 1, 2],
            {"param": "[2]", "expected": "2 parameters at most", "received": "integer"},
        ),
    ],
)
def test_wrong_parameters_are_refused_before_the_method_runs(
    tmp_path: Path, params: object, data: object
) -> None:
    path = write(tmp_path, WORDS)
    (error,), log = ask(tmp_path, request(1, "word_count", params), "--methods", str(path))
    assert error["code"] == -32602
    assert error["data"] == data
    assert "WARN  method=word_count id=1 Invalid params" in log


def test_extras_of_annotated_are_no_matter(tmp_path: Path) -> None:
    text = (
        "from typing import Annotated\nfrom duet_rpc import method\n"
        "@method\ndef f(x: Annotated[int, ['a list']]) -> int: return x\n"
    )
    assert ask(tmp_path, request(1, "f", [3]), "--methods", str(write(tmp_path, text)))[0] == [3]


def test_positional_only_parameters_can_be_omitted_from_the_end(tmp_path: Path) -> None:
    text = (
        "from duet_rpc import Context, method\n@method\n"
        "def f(a: int = 1, b: int = 2, ctx: Context = None, /, c: int = 3) -> list:\n"
        "    return [a, b, ctx is not None, c]\n"
    )
    data = request(1, "f", {"b": 5}) + request(2, "f", {"c": 5}) + request(3, "f", [7, 8, 9])
    results, _ = ask(tmp_path, data, "--methods", str(write(tmp_path, text)))
    assert results == [[1, 5, True, 3], [1, 2, True, 5], [7, 8, True, 9]]


def test_the_accepted_values_are_said_in_json(tmp_path: Path) -> None:
    text = (
        "from typing import Literal, Union\nfrom duet_rpc import method\n"
        "@method\ndef f(x: Literal[True, 'a', 1, None]) -> None: pass\n"
        "@method\ndef g(x: Union[Literal[True], Literal['z']]) -> None: pass\n"
    )
    path = str(write(tmp_path, text))
    wrong: list[object] = [{}, ["y"], [2]]
    data = b"".join(request(1, name, params) for name in "fg" for params in wrong)
    results, _ = ask(tmp_path, data, "--methods", path)
    assert [error["data"]["accepted"] for error in results] == [
        *[["true", "a", "1", "null"]] * 3,
        *[["true", "z"]] * 3,
    ]
    assert [error["data"]["received"] for error in results] == ["missing", "y", "integer"] * 2


def test_a_name_without_end_is_cut(tmp_path: Path) -> None:
    text = "from duet_rpc import method\n@method\ndef f(x: dict[str, int]) -> None: pass\n"
    path = str(write(tmp_path, text))
    data = request(1, "f", {"n" * 1000: 1}) + request(2, "f", {"x": {"k" * 1000: ""}})
    results, _ = ask(tmp_path, data, "--methods", path)
    assert [error["data"]["param"] for error in results] == ["n" * 80, "x." + "k" * 80]


def test_a_record_that_refuses_its_values_is_named(tmp_path: Path) -> None:
    text = (
        "from dataclasses import dataclass\nfrom duet_rpc import method\n@dataclass\n"
        "class A:\n    b: int\n    def __post_init__(self):\n"
        "        assert self.b > 0, 'too small'\n"
        "@method\ndef f(a: A) -> int: return a.b\n"
    )
    path = str(write(tmp_path, text))
    (good, bad), log = ask(
        tmp_path, request(1, "f", [{"b": 1}]) + request(2, "f", [{"b": 0}]), "--methods", path
    )
    assert (good, bad["code"]) == (1, -32603)
    assert "AssertionError (words.py:7 in __post_init__)" in log


def test_ping_and_echo_are_loaded_by_name_only(tmp_path: Path) -> None:
    calls = request(1, "system.ping") + request(2, "system.echo", {"message": "héllo"})
    assert ask(tmp_path, calls, "--methods", "system")[0] == ["pong", "héllo"]
    assert [error["code"] for error in ask(tmp_path, calls)[0]] == [-32601, -32601]


def test_log_lines_of_a_method_have_name_and_id() -> None:
    _, _, log = run(request(7, "chatty"), WITH_METHODS)
    for words in ("DEBUG method=chatty id=7 d", "INFO  method=chatty id=7 i {braces} <red>",
                  "WARN  method=chatty id=7 w", "ERROR method=chatty id=7 e",
                  "INFO  method=chatty id=7 ['no', 1, 'text']"):  # fmt: skip
        assert words in log
