"""Tests of the other examples, as you would write them for your own methods: `pytest examples`."""

import base64
from pathlib import Path

import pytest
from chart import chart
from chat import talk
from csv_table import csv_summary, csv_table
from doubled_words import remove_doubled_words, straighten_quotes
from epoch import show_time
from increment import increment_numbers
from natural_sort import sort_naturally
from notes import keep_note, list_notes, read_note, summarize_note
from places import list_todos, visit_test
from readability import readability
from reformat import reformat_json, reformat_sql
from rename_symbol import rename_symbol
from run_region import run_region
from sql import query

from duet_rpc.testing import Outcome, call

SALES = "town;sold\nUlm;3\nBonn;12\n"


def applied(text: str, outcome: Outcome) -> str:
    """Return a text with the changes of a result, from the last to the first."""
    edits = [edit for result in outcome.result for edit in result["edits"]]
    for edit in sorted(edits, key=lambda edit: -edit["start"]):
        text = text[: edit["start"]] + edit["text"] + text[edit["end"] :]
    return text


def test_lines_are_sorted_as_a_person_would() -> None:
    pages = "page 10\nPage 2\npage 1\n"
    assert call(sort_naturally, text=pages).result == "page 1\nPage 2\npage 10\n"
    assert call(sort_naturally, text="b\na").result == "a\nb"
    assert call(sort_naturally, text="").result == ""


def test_csv_becomes_a_table() -> None:
    assert call(csv_table, text=SALES).result[1] == {"town": "Bonn", "sold": "12"}
    assert call(csv_table, text='a\n"one\ntwo"\n').result == [{"a": "one\ntwo"}]
    assert call(csv_table, text="town;sold\n").error.code == -32001


def test_columns_are_summarized() -> None:
    result = call(csv_summary, text=SALES).result
    assert result["mode"] == "org-mode"
    assert "| sold | 2 | 2 | 3 | 12 |" in result["text"]
    assert "| town | 2 | 2 | Bonn | Ulm |" in result["text"]
    assert "| b | 0 | 0 |  |  |" in call(csv_summary, text="a,b\n1,\n").result["text"]


def test_query_makes_a_table(tmp_path: Path) -> None:
    file = tmp_path / "towns.csv"
    file.write_text("town,price\nUlm,3\nUlm,4\n")
    found = call(query, file=str(file), query="select town, sum(price) from data").result
    assert found.splitlines()[2] == "| Ulm | 7 |"


def test_json_and_sql_are_reformatted() -> None:
    assert call(reformat_json, text='{"a":[1]}').result.startswith('{\n  "a"')
    assert call(reformat_json, text="{").error.code == -32001
    assert call(reformat_sql, text="select a  from t").result == "SELECT a\nFROM t\n"


def test_readability_counts_and_reports_progress() -> None:
    outcome = call(readability, text="One two. Three four five?", top=1)
    assert outcome.result["words"] == 5
    assert outcome.result["sentences"] == 2
    assert outcome.progress[0].message == "reading"


def test_a_file_and_its_test_are_found_from_each_other(tmp_path: Path) -> None:
    source, test = tmp_path / "src/words.py", tmp_path / "tests/test_words.py"
    for path, text in ((source, "x = 1\ndef count(): ...\n"), (test, "def test_count(): ...\n")):
        path.parent.mkdir()
        path.write_text(text)
    there = call(visit_test, file=str(source), line="def count():").result
    assert (there["file"], there["line"]) == (str(test), 1)
    back = call(visit_test, file=str(test), line="def test_count(): ...").result
    assert (back["file"], back["line"]) == (str(source), 2)
    assert call(visit_test, file=str(tmp_path / "src/other.py")).error.code == -32001


def test_todos_are_listed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.py").write_text("x = 1\ny = 2  # TODO: three\n")
    (tmp_path / "b/c.py").write_text("# FIXME\n")
    (tmp_path / "b/d.txt").write_text("TODO\n")
    found = call(list_todos, file=str(tmp_path / "a.py")).result
    assert [(Path(each["file"]).name, each["line"]) for each in found] == [("a.py", 2), ("c.py", 1)]


def test_numbers_become_bars() -> None:
    result = call(chart, text="Costs\nrent: 870\n- food & drink 435.50\nrefund -20\n").result
    assert result["mime"] == "image/svg+xml"
    svg = base64.b64decode(result["data"]).decode()
    assert svg.count("<rect") == 4
    assert 'width="180.2"' in svg
    assert "food &amp; drink" in svg
    assert call(chart, text="nothing").error.code == -32001


def test_prose_is_corrected() -> None:
    text = "Paris in the\nthe spring, \u201cthat that\u201d"
    assert applied(text, call(remove_doubled_words, text=text)).startswith("Paris in the spring")
    assert applied(text, call(straighten_quotes, text=text)).endswith('"that that"')


def test_numbers_count_up() -> None:
    assert call(increment_numbers, text="img007, 9").result == "img008, 10"
    assert call(increment_numbers, text="img007", by=-5).result == "img002"


def test_the_region_is_run_in_its_language() -> None:
    assert call(run_region, text="print(1 + 1)", mode="python-ts-mode").result["text"] == "2\n"
    failed = call(run_region, text="echo no >&2; exit 3", mode="sh-mode").result["text"]
    assert failed == "no\nexit code 3\n"
    assert "org-mode" in call(run_region, text="", mode="org-mode").error.message


def test_unix_time_is_shown_as_a_date() -> None:
    assert "2023-11-14 22:13:20 UTC" in call(show_time, number="1700000000").result
    assert "2023-11-14 22:13:20 UTC" in call(show_time, number="1700000000000").result
    assert call(show_time, number="x").error.message == "'x' is not a Unix time"


def test_a_symbol_is_renamed_where_it_is_wanted(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("total = subtotal + total\n")
    file = str(tmp_path / "a.py")
    answers = {
        "save-some-buffers": None,
        "Rename total to?": "sum",
        "In which files?": ["b.py"],
        "Change 1 of 2 files?": False,
        "emacs/eval": None,
    }
    outcome = call(rename_symbol, symbol="total", file=file, answers=answers)
    assert outcome.result == "Nothing was changed"
    assert outcome.asked[2].params["choices"][0] == {"text": "a.py", "note": "2 times"}
    answers["Change 1 of 2 files?"] = True
    outcome = call(rename_symbol, symbol="total", file=file, answers=answers)
    assert outcome.result == "total is sum now in b.py"
    assert (tmp_path / "b.py").read_text() == "sum = subtotal + sum\n"
    assert (tmp_path / "a.py").read_text() == "total = subtotal + total\n"


def test_a_listener_answers_word_by_word() -> None:
    outcome = call(talk, text="Hello.\nI need my coffee!", pause=0)
    assert outcome.result.startswith("\nWhy do you want your coffee? ")
    assert outcome.partial[:3] == ["\n", "Why ", "do "]


def test_a_note_is_kept_for_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notes.FOLDER", tmp_path)
    assert call(keep_note, text="buy milk\n", name="../todo").result.startswith("Kept in")
    assert call(list_notes).result == ["todo"]
    assert call(read_note, name="todo").result == "buy milk\n"
    assert call(read_note, name="../todo").error.message == "there is no note '../todo'"
    [message] = call(summarize_note, name="todo").result
    assert message["text"] == "Write a short summary:\n\nbuy milk\n"
