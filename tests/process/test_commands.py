"""`@command`: what Emacs, a terminal and an AI client are told of a function, and what they get."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from duet_rpc.methods.command_options import RESULTS
from tests.author import ONE, rpc
from tests.mcp_client import HANDSHAKE, meta
from tests.method_files import env_for, write
from tests.support import SOURCE, daemon, notification, request, run
from tests.terminal import Person, environment, invoke

HEAD = """
from __future__ import annotations
from typing import Annotated, Any, List, Optional, Union
from duet_rpc import (
    Buffer, Edit, FileName, Goto, Image, Line, Lisp, MajorMode, Point, PrefixArg, Region,
    SymbolAtPoint, Text, command, method,
)
"""


def discover(tmp_path: Path, text: str) -> tuple[dict[str, Any], str]:
    """Return the methods of `rpc.discover` by name, and the log."""
    path = write(tmp_path, HEAD + text)
    command = [*SOURCE, "rpc", "--methods", str(path)]
    code, replies, log = run(request(1, "rpc.discover"), command, env_for(tmp_path))
    assert code == 0
    return {each["name"]: each for each in replies[0]["result"]["methods"]}, log


def call(tmp_path: Path, text: str, method: str, params: object = None) -> Any:
    """Return the result of a call over the daemon's wire, or its error."""
    path = write(tmp_path, HEAD + text)
    command = [*SOURCE, "rpc", "--methods", str(path)]
    _, replies, _ = run(request(1, method, params), command, env_for(tmp_path))
    return replies[0].get("result", replies[0].get("error"))


# What is said of a command.


def test_six_lines_of_python_are_a_command(tmp_path: Path) -> None:
    text = '''
@command(key="C-c w", result="replace")
def sort_words(text: Region) -> str:
    """Sort the words of the region."""
    return " ".join(sorted(text.split()))
'''
    found = discover(tmp_path, text)[0]["sort_words"]
    assert found["x-command"] == {
        "name": "sort-words",
        "key": "C-c w",
        "result": "replace",
        "sources": {"text": "region"},
    }
    assert found["description"] == "Sort the words of the region."
    assert found["x-source"]["file"].endswith("words.py")
    assert call(tmp_path, text, "sort_words", {"text": "b a"}) == "a b"


def test_all_options_are_told_and_those_not_given_are_absent(tmp_path: Path) -> None:
    found, log = discover(
        tmp_path,
        """
@command
def bare(): pass

@command()
def called(): pass

@command("text.sort", name="my-sort", key=" C-c s ", result="edit", save_excursion=True,
         modes=["org-mode", "markdown-mode"], review=True, remote=True,
         title="Sort", read_only=True)
def everything(): pass

@method
def no_command(text: Region): pass
""",
    )
    assert "could not be loaded" not in log
    assert found["bare"]["x-command"] == {"name": "bare", "sources": {}}
    assert found["called"]["x-command"] == {"name": "called", "sources": {}}
    assert found["text.sort"]["x-command"] == {
        "name": "my-sort",
        "key": "C-c s",
        "result": "edit",
        "saveExcursion": True,
        "modes": ["org-mode", "markdown-mode"],
        "review": True,
        "remote": True,
        "sources": {},
    }
    assert "x-command" not in found["no_command"]
    assert "x-command" not in found["version"]


@pytest.mark.parametrize("result", RESULTS)
def test_every_kind_of_result_can_be_asked_for(tmp_path: Path, result: str) -> None:
    found, _ = discover(tmp_path, f"@command(result={result!r})\ndef f(): pass\n")
    assert found["f"]["x-command"]["result"] == result


SOURCES = '''
@command
def f(
    region: Region, buffer: Buffer, line: Line, symbol: SymbolAtPoint, file: Optional[FileName],
    point: Point, mode: MajorMode, lisp: Annotated[str, Lisp("(buffer-name)")],
    number: Annotated[int, Lisp("(line-number-at-pos)"), "the line's number"],
    prompted: str, described: Region = "", prefix: PrefixArg = 1,
) -> str:
    """Take everything.

    Args:
        described: what the docstring says
    """
    return repr((region, point))
'''


def test_parameters_come_from_where_their_types_say(tmp_path: Path) -> None:
    method = discover(tmp_path, SOURCES)[0]["f"]
    assert method["x-command"]["sources"] == {
        "region": "region",
        "buffer": "buffer",
        "line": "line",
        "symbol": "symbol",
        "file": "file",
        "point": "point",
        "mode": "mode",
        "lisp": {"lisp": "(buffer-name)"},
        "number": {"lisp": "(line-number-at-pos)"},
        "described": "region",
        "prefix": "prefix",
    }


def test_to_everybody_else_they_are_strings_and_integers(tmp_path: Path) -> None:
    params = {each["name"]: each for each in discover(tmp_path, SOURCES)[0]["f"]["params"]}
    schemas = {name: each["schema"] for name, each in params.items()}
    for schema in schemas.values():
        Draft7Validator.check_schema(schema)
    assert schemas["region"] == {
        "type": "string",
        "description": "the region, or the whole buffer",
    }
    assert schemas["point"]["type"] == "integer"
    assert schemas["file"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schemas["lisp"]["description"] == "the value of (buffer-name) in Emacs"
    assert schemas["number"]["description"] == "the line's number"
    assert schemas["described"]["description"] == "what the docstring says"
    assert "description" not in schemas["prompted"]
    assert [name for name, each in params.items() if not each["required"]] == [
        "described",
        "prefix",
    ]
    text = "@command\ndef f(text: Region = 'x', n: Point = 0) -> str: return f'{text}{n}'\n"
    assert call(tmp_path, text, "f") == "x0"
    assert call(tmp_path, text, "f", ["y", 2]) == "y2"
    assert call(tmp_path, text, "f", {"text": 1})["data"]["expected"] == "string"


# Mistakes.

REFUSED = {
    "result='show'": "result must be one of message, insert, replace, buffer, edit, stream, none, "
    "not 'show'",
    "key=''": 'key must be a key as `kbd` takes it, such as "C-c w"',
    "key=['C-c w']": 'key must be a key as `kbd` takes it, such as "C-c w"',
    "modes='org-mode'": 'modes must be a list of major modes, such as ["org-mode"]',
    "modes=[]": 'modes must be a list of major modes, such as ["org-mode"]',
    "modes=['org mode']": 'modes must be a list of major modes, such as ["org-mode"]',
    "name='sort words'": "'sort words' can't be the name of an Emacs command",
    "name=''": "'' can't be the name of an Emacs command",
    "name='(sort)'": "'(sort)' can't be the name of an Emacs command",
    "name='12'": "'12' can't be the name of an Emacs command",
    "name=':key'": "':key' can't be the name of an Emacs command",
    "name='nil'": "'nil' can't be the name of an Emacs command",
    "name=5": "5 can't be the name of an Emacs command",
    "save_excursion='yes'": "save_excursion must be True or False",
    "review=1": "review must be True or False",
    "remote=None": "remote must be True or False",
    "review=True, result='none'": 'review is for results that change the buffer, not for "none"',
    "title=5": "title must be a string",
}


@pytest.mark.parametrize("options", REFUSED)
def test_a_wrong_option_costs_one_command_and_names_the_line(tmp_path: Path, options: str) -> None:
    text = f"@command({options})\ndef f(): pass\n\n@command\ndef good(): pass\n"
    found, log = discover(tmp_path, text)
    assert "f" not in found
    assert "good" in found
    assert f"words.py:8: f: {REFUSED[options]}" in log


def test_names_that_emacs_reads_are_taken(tmp_path: Path) -> None:
    names = ["my/sort", "größe", "1+", "sort-2", "a:b", "is?", "-x"]
    text = "".join(f"@command(name={name!r})\ndef f{n}(): pass\n" for n, name in enumerate(names))
    found, _ = discover(tmp_path, text)
    assert [found[f"f{n}"]["x-command"]["name"] for n in range(len(names))] == names


def test_a_command_cannot_be_a_method_of_a_class(tmp_path: Path) -> None:
    text = "class Words:\n    @command\n    def count(self): pass\n"
    text += "command('bound', name='count-words')(Words().count)\n"
    text += "@command\ndef twice(n: int) -> int: return 2 * n\nassert twice(2) == 4\n"
    found, log = discover(tmp_path, text)
    assert "`@command` is for functions, not for methods of a class" in log
    assert found["bound"]["x-command"]["name"] == "count-words"
    assert "twice" in found


def test_lisp_without_an_expression_is_refused_at_its_line(tmp_path: Path) -> None:
    text = "@command\ndef f(x: Annotated[str, Lisp('')]): pass\n"
    _, log = discover(tmp_path, text)
    assert "words.py:8: f: a type hint can't be read: Lisp needs an expression" in log


# Over MCP.

PICTURES = """
SVG = "<svg xmlns='http://www.w3.org/2000/svg'/>"

@command
def picture() -> Image: return Image(SVG)
@method
def unhinted(): return Image(SVG)
@method
def several() -> List[Union[Image, str]]: return [Image(SVG), "a dot"]
@method
def text() -> Text: return Text("* a", "org-mode")
@method
def goto() -> Goto: return Goto("/a", 3)
@method
def edits() -> List[Edit]: return [Edit(0, 1, "b")]
@method
def odd(): return {"duet": "image"}
"""


def tools(tmp_path: Path, version: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return each tool and what a call of it gives, in one version of the protocol."""
    path = write(tmp_path, HEAD + PICTURES)
    with daemon(
        [*SOURCE, "mcp", "--methods", str(path)], env_for(tmp_path), framing="lines"
    ) as client:

        def ask(method: str, **params: object) -> Any:
            said = params if version in HANDSHAKE else {**params, "_meta": meta()}
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": said}
            client.send(json.dumps(message).encode() + b"\n")
            return client.receive()["result"]

        if version in HANDSHAKE:
            client_info = {"name": "test", "version": "1"}
            ask("initialize", protocolVersion=version, capabilities={}, clientInfo=client_info)
        return {
            each["name"]: (each, ask("tools/call", name=each["name"], arguments={}))
            for each in ask("tools/list")["tools"]
        }


@pytest.mark.parametrize("version", [HANDSHAKE[0], HANDSHAKE[-1], "2026-07-28"])
def test_a_model_sees_pictures_as_pictures_and_texts_as_texts(tmp_path: Path, version: str) -> None:
    found = tools(tmp_path, version)
    data = "PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmcnLz4="
    image = {"type": "image", "data": data, "mimeType": "image/svg+xml"}
    for name in ("picture", "unhinted"):
        assert found[name][1]["content"] == [image]
    assert found["several"][1]["content"] == [image, {"type": "text", "text": "a dot"}]
    for name in ("picture", "unhinted", "several"):
        tool, result = found[name]
        assert "structuredContent" not in result, "the model would read it as text"
        assert "outputSchema" not in tool
    assert found["text"][1]["content"] == [{"type": "text", "text": "* a"}]
    assert json.loads(found["goto"][1]["content"][0]["text"])["line"] == 3
    assert json.loads(found["edits"][1]["content"][0]["text"])[0]["duet"] == "edit"
    assert json.loads(found["odd"][1]["content"][0]["text"]) == {"duet": "image"}
    for tool, result in found.values():
        assert result["isError"] is False
        if "outputSchema" in tool:
            Draft202012Validator(tool["outputSchema"]).validate(result["structuredContent"])


# In a terminal.

SHOWN = r"""
@command(key="C-c t")
def text() -> Text: return Text("* a\n\x1b[31mé")
@method
def picture() -> Image: return Image("<svg/>")
@method
def goto(column: int = 0) -> Goto: return Goto("/a/b.py", 12, column)
@method
def gotos() -> List[Goto]: return [Goto("/a", 1), Goto("/b", 2)]
@method
def edits() -> List[Edit]: return [Edit(0, 2, 'a "b"'), Edit(5, 5, "c"), Edit(7, 9, "")]
@method
def odd() -> Any: return [{"duet": "goto"}, {"duet": []}, {"duet": "image", "data": "a"}]
@method
def mixed() -> Any: return [Goto("/a", 1), "b"]
"""


def test_a_terminal_shows_results_for_people(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + SHOWN)
    env = environment(tmp_path)

    def shown(*words: str) -> str:
        code, out, err = invoke(["call", "--methods", str(path), *words], env)
        assert (code, err) == (0, "")
        return out

    assert shown("text") == "* a\n\x1b[31mé\n"
    assert shown("goto") == "/a/b.py:12\n"
    assert shown("goto", "column=4") == "/a/b.py:12:5\n", "as compilers count"
    assert shown("gotos") == "/a:1\n/b:2\n"
    assert shown("edits") == 'replace 0 to 2 with "a \\"b\\""\nat 5 insert "c"\ndelete 7 to 9\n'
    assert [*json.loads(shown("odd"))[0]] == ["duet"]
    assert json.loads(shown("mixed"))[1] == "b"
    file = Path(shown("picture").removesuffix("\n"))
    try:
        assert file.suffix == ".svg"
        assert file.read_text() == "<svg/>"
    finally:
        file.unlink()


def test_a_picture_that_no_file_can_take_is_json(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + SHOWN)
    script = f"ulimit -f 0; exec {' '.join(SOURCE)} call --methods {path} picture"
    code, out, err = invoke([], environment(tmp_path), None, ["sh", "-c", script])
    assert code == 0
    assert json.loads(out)["mime"] == "image/svg+xml"
    assert err.startswith("duet-rpc: cannot write the picture to a temporary file: No usable ")


def test_the_console_shows_them_alike_and_executes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + SHOWN)
    with Person(["console", "--no-color", "--methods", str(path)], environment(tmp_path)) as person:
        person.type("text\n")
        person.see("\\x1b[31m")
        person.type("goto\n")
        person.see("/a/b.py:12")


def test_text_that_stdout_cannot_encode_is_shown_escaped(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + SHOWN)
    env = {**environment(tmp_path), "PYTHONIOENCODING": "ascii"}
    assert invoke(["call", "--methods", str(path), "text"], env)[1] == "* a\n\x1b[31m\\xe9\n"


def test_commands_are_marked_in_the_list(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + SHOWN)
    env = environment(tmp_path)
    out = invoke(["list", "--methods", str(path)], env)[1]
    assert "  text() -> Text\n      M-x text, C-c t\n  picture() -> Image\n  goto" in out
    methods = json.loads(invoke(["list", "--json", "--methods", str(path)], env)[1])["methods"]
    assert methods[0]["command"] == {"name": "text", "key": "C-c t", "sources": {}}
    assert "command" not in methods[1]


# What changes while Emacs is connected.

CHANGED = {"jsonrpc": "2.0", "method": "client/methodsChanged"}


def test_a_client_is_told_once_that_methods_changed(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", 1), "a.py")
    with rpc(tmp_path) as author:
        assert author.call("f") == 1
        assert author.call("rpc.discover")["methods"][-1]["name"] == "f"
        assert author.call("f") == 1
        write(folder, ONE.format("f", 2), path.name)
        assert author.ask("f") == CHANGED
        assert author.reply()["result"] == 2
        write(folder, ONE.format("f", 3), path.name)
        assert author.call("f") == 3, "it was told, and has not asked since"
        assert author.call("rpc.discover")
        write(folder, ONE.format("g", 1), "b.py")
        assert author.ask("listMethods") == CHANGED
        assert author.reply()["result"][-1]["name"] == "g"


@pytest.mark.parametrize("method", ["reloadMethods", "loadMethods"])
def test_loading_on_request_is_a_change_too(tmp_path: Path, folder: Path, method: str) -> None:
    write(folder, ONE.format("f", 1), "a.py")
    other = write(tmp_path, ONE.format("g", 1), "other.py")
    with rpc(tmp_path) as author:
        author.call("rpc.discover")
        os.utime(folder / "a.py")
        params = {"file": str(other)} if method == "loadMethods" else None
        author.client.send(notification(method, params))
        assert author.ask("version") == CHANGED
        assert "version" in author.reply()["result"]


def test_a_client_that_never_asked_is_not_told(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", 1), "a.py")
    with rpc(tmp_path) as author:
        assert author.call("f") == 1
        write(folder, ONE.format("f", 2), path.name)
        assert author.call("f") == 2
        assert author.call("reloadMethods")["methods"] == ["f"]
