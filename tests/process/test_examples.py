"""The examples are small, and they work."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import SOURCE, TOP, daemon, request, run
from tests.terminal import Person, environment

EXAMPLES = TOP / "examples"
OTHERS = {"demo.py", "test_examples.py"}
FILES = sorted(path for path in EXAMPLES.glob("*.py") if path.name not in OTHERS)


def call(file: str, method: str, params: object, home: Path) -> Any:
    command = [*SOURCE, "rpc", "--methods", str(EXAMPLES / file)]
    _, replies, log = run(request(1, method, params), command, {"HOME": str(home)})
    assert "could not be loaded" not in log
    return replies[0].get("result", replies[0].get("error"))


def commands() -> list[dict[str, Any]]:
    """Return what a daemon with all of the examples says of their commands."""
    options = [word for path in FILES for word in ("--methods", str(path))]
    _, replies, log = run(request(1, "rpc.discover"), [*SOURCE, "rpc", *options])
    assert "could not be loaded" not in log
    methods = replies[0]["result"]["methods"]
    return [{**each["x-command"], **each} for each in methods if "x-command" in each]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_has_under_forty_lines_and_no_elisp(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 40
    assert "@command" in text
    assert "(duet-rpc" not in text


def test_all_examples_can_be_kept_together() -> None:
    found = commands()
    assert {Path(each["x-source"]["file"]) for each in found} == set(FILES)
    assert len(found) >= 8
    names = [each["name"] for each in found]
    keys = [each["key"] for each in found if "key" in each]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch("C-c [a-z]", key) for key in keys), "what Emacs leaves to its users"
    assert all(each["summary"].endswith(".") for each in found)


def test_notes_are_a_resource_and_a_prompt_for_an_ai_client(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "share" / "notes"
    folder.mkdir(parents=True)
    (folder / "todo.md").write_text("buy milk")
    with daemon(
        [*SOURCE, "mcp", "--methods", str(EXAMPLES / "notes.py")],
        {"HOME": str(tmp_path)},
        framing="lines",
    ) as client:

        def ask(method: str, **params: object) -> str:
            said = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            client.send(json.dumps(said).encode() + b"\n")
            return client.receive_raw().decode()

        ask("initialize", protocolVersion="2025-11-25", capabilities={})
        assert "todo" in ask("resources/read", uri="notes://all")
        assert "buy milk" in ask("resources/read", uri="notes://note/todo")
        assert "-32002" in ask("resources/read", uri="notes://note/none")
        assert "buy milk" in ask("prompts/get", name="summarize_note", arguments={"name": "todo"})


def test_sql_over_a_csv_file_is_an_org_table(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("city,price\nBern,3\nRome,4\nBern,5\n")
    query = "select city, sum(price) as total from data group by city order by 2 desc"
    assert call("sql.py", "sql.query", [str(file), query], tmp_path) == (
        "| city | total |\n|-\n| Bern | 8 |\n| Rome | 4 |\n"
    )
    error = call("sql.py", "sql.query", [str(file), "selec"], tmp_path)
    assert error["message"].startswith("prices.csv: ")
    error = call("sql.py", "sql.query", [str(tmp_path / "no.csv"), "select 1"], tmp_path)
    assert error["code"] == -32001


def test_json_and_sql_are_reformatted(tmp_path: Path) -> None:
    text = '{"a":[1,"é"]}'
    pretty = call("reformat.py", "reformat_json", {"text": text}, tmp_path)
    assert pretty == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
    sql = "select a,  b from t where x = 'from  here' order by a"
    assert call("reformat.py", "reformat_sql", {"text": sql}, tmp_path) == (
        "SELECT a, b\nFROM t\nWHERE x = 'from  here'\nORDER BY a\n"
    )
    error = call("reformat.py", "reformat_json", {"text": "{"}, tmp_path)
    assert "The text is not JSON" in error["message"]


def test_readability_reports_its_progress(tmp_path: Path) -> None:
    text = "One two three. Four five? " * 10_000
    params = {"text": text, "_meta": {"progressToken": 1}}
    command = [*SOURCE, "rpc", "--methods", str(EXAMPLES / "readability.py")]
    with daemon(command, {"HOME": str(tmp_path)}) as client:
        client.send(request(1, "text.readability", params))
        messages = [json.loads(client.receive_raw())]
        while "id" not in messages[-1]:
            messages.append(json.loads(client.receive_raw()))
    done = [each["params"]["value"]["done"] for each in messages[:-1]]
    assert done == sorted(done)
    assert 0 < done[0] <= done[-1] < len(text)
    result = messages[-1]["result"]
    assert (result["words"], result["sentences"]) == (50_000, 20_000)
    assert result["most_frequent"] == {"three": 10_000, "four": 10_000, "five": 10_000}


def test_a_symbol_is_renamed_at_a_terminal(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text("total = 1\nsubtotal = total\n")
    words = ["call", "--methods", str(EXAMPLES / "rename_symbol.py"), "rename_symbol"]
    words += ["symbol=total", f"file={tmp_path / 'a.py'}"]
    with Person(words, environment(tmp_path)) as person:
        person.see("Rename total to? [total] ")
        person.type("sum\n")
        person.see("2 b.py  (2 times)")
        person.type("1,2\n")
        person.see("Change 2 of 3 files? [y/N] ")
        person.type("y\n")
        assert person.leave() == 0
    texts = [(tmp_path / f"{name}.py").read_text() for name in ("a", "b", "c")]
    changed, same = "sum = 1\nsubtotal = sum\n", "total = 1\nsubtotal = total\n"
    assert texts == [changed, changed, same]


def test_a_chat_streams_at_a_terminal(tmp_path: Path) -> None:
    words = ["call", "--methods", str(EXAMPLES / "chat.py"), "talk", "text=I need coffee."]
    with Person(words, environment(tmp_path)) as person:
        person.see("Why do you want coffee? ")
        assert person.leave() == 0


def test_a_watched_file_is_announced_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("one")
    os.utime(file, (1, 1))
    with daemon([*SOURCE, "rpc", "--methods", str(EXAMPLES / "watch_file.py")]) as client:
        assert client.call("watch_file", {"file": str(file)}) == f"{file} is watched"
        file.write_text("two")
        said = json.loads(client.receive_raw())
        assert said["method"] == "client/notify"
        assert said["params"] == {"topic": "file-changed", "params": {"file": str(file)}}
        client.call("watch_file", {"file": str(file)})
