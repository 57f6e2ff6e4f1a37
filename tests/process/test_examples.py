"""The examples are small, and they work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import SOURCE, TOP, daemon, request, run

EXAMPLES = TOP / "examples"
FILES = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "six_calls.py")


def call(file: str, method: str, params: object, home: Path) -> Any:
    command = [*SOURCE, "rpc", "--methods", str(EXAMPLES / file)]
    _, replies, log = run(request(1, method, params), command, {"HOME": str(home)})
    assert "could not be loaded" not in log
    return replies[0].get("result", replies[0].get("error"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_has_under_forty_lines_and_its_elisp(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 40
    name = re.search(r"@method(?:\(\"(.*?)\"\))?\ndef (\w+)", text)
    assert name is not None
    assert "(duet-rpc-define-command my-" in text
    assert f'"{name.group(1) or name.group(2)}"' in text.split('"""')[1]


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
    pretty = call("reformat.py", "reformat", {"text": text, "kind": "json"}, tmp_path)
    assert pretty == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
    sql = "select a,  b from t where x = 'from  here' order by a"
    assert call("reformat.py", "reformat", {"text": sql, "kind": "sql"}, tmp_path) == (
        "SELECT a, b\nFROM t\nWHERE x = 'from  here'\nORDER BY a\n"
    )
    error = call("reformat.py", "reformat", {"text": "{", "kind": "json"}, tmp_path)
    assert "The text is not JSON" in error["message"]
    error = call("reformat.py", "reformat", {"text": "{", "kind": "xml"}, tmp_path)
    assert error["data"]["accepted"] == ["json", "sql"]


def test_readability_reports_its_progress(tmp_path: Path) -> None:
    text = "One two three. Four five? " * 10_000
    params = {"text": text, "_meta": {"progressToken": 1}}
    command = [*SOURCE, "rpc", "--methods", str(EXAMPLES / "readability.py")]
    with daemon(command, {"HOME": str(tmp_path)}) as client:
        client.send(request(1, "text.readability", params))
        messages = [json.loads(client.receive_raw()) for _ in range(5)]
    done = [each["params"]["value"]["done"] for each in messages[:4]]
    assert done == sorted(done)
    assert 0 < done[0] < done[-1] < len(text)
    result = messages[4]["result"]
    assert (result["words"], result["sentences"]) == (50_000, 20_000)
    assert result["most_frequent"] == {"three": 10_000, "four": 10_000, "five": 10_000}
