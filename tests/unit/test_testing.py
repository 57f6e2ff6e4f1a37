"""`duet_rpc.testing`: a call in this process is what a caller would have got."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from duet_rpc import Context, Declined, EmacsError, RpcError, Symbol, notify
from duet_rpc.testing import Asked, Progress, call


@dataclass
class Point:
    x: int
    y: int = 0


def move(point: Point, by: int = 1, *, where: Path = Path()) -> Point:
    assert isinstance(where, Path)
    return Point(point.x + by, point.y)


def test_parameters_and_results_go_through_the_checks_and_through_json() -> None:
    assert call(move, point={"x": 1}, by=2, where="/tmp").result == {"x": 3, "y": 0}
    assert call(move, {"x": 1}).result == {"x": 2, "y": 0}


def test_an_invalid_parameter_is_an_error_with_its_path() -> None:
    error = call(move, point={"x": "1"}).error
    assert error is not None
    assert (error.code, error.data["param"]) == (-32602, "point.x")


def test_a_result_that_violates_its_hint_is_an_error() -> None:
    def wrong() -> int:
        return "text"  # type: ignore[return-value]

    error = call(wrong).error
    assert error is not None
    assert error.code == -32603


def test_asking_for_the_result_of_a_failure_raises_it() -> None:
    def fail() -> int:
        empty: dict[str, int] = {}
        return empty["missing"]

    outcome = call(fail)
    assert outcome.error is not None
    assert (outcome.error.code, type(outcome.exception)) == (-32603, KeyError)
    assert outcome.error.data["type"] == "KeyError"
    with pytest.raises(AssertionError, match=r"the call failed: KeyError \(test_testing.py:\d+ in"):
        _ = outcome.result


def test_an_rpc_error_comes_as_it_was_raised() -> None:
    def refuse() -> None:
        raise RpcError(-32001, "Not today", {"when": "tomorrow"})

    error = call(refuse).error
    assert error is not None
    assert (error.code, error.message, error.data) == (-32001, "Not today", {"when": "tomorrow"})


def talk(ctx: Context) -> str:
    ctx.progress(1, 2, "half")
    ctx.log.warn("careful")
    ctx.log.warning("again")
    return "done"


def test_progress_and_log_lines_are_kept() -> None:
    outcome = call(talk)
    assert outcome.result == "done"
    assert outcome.progress == [Progress(1, 2, "half")]
    assert outcome.log == [("warn", "careful"), ("warn", "again")]


@pytest.mark.parametrize("busy", [lambda: time.sleep(60), lambda: [0 for _ in iter(int, 1)]])
def test_a_call_is_cancelled_once_and_cleans_up(busy: Any) -> None:
    def slow(ctx: Context) -> None:
        try:
            busy()
        finally:
            ctx.log.info(f"cancelled: {ctx.cancelled}")
            time.sleep(0.1)  # as cleaning up may take
            ctx.progress(1)

    outcome = call(slow, cancel_after=0.1)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.log) == (-32800, [("info", "cancelled: True")])
    assert len(outcome.progress) == 1


def test_a_block_that_must_not_be_interrupted_is_not() -> None:
    def careful(ctx: Context) -> None:
        with ctx.uninterrupted():
            time.sleep(0.3)  # in which it is cancelled
            ctx.log.info("whole")
        ctx.log.info("never")

    assert call(careful, cancel_after=0.1).log == [("info", "whole")]


def test_a_call_that_ends_in_time_is_not_cancelled() -> None:
    before = threading.active_count()
    assert call(talk, cancel_after=30).result == "done"
    assert threading.active_count() == before


def test_parameters_by_name_and_by_position_are_not_mixed() -> None:
    with pytest.raises(TypeError, match="by name or by position"):
        call(move, {"x": 1}, by=2)


def test_questions_are_answered_by_their_prompts() -> None:
    def rename(symbol: str, ctx: Context) -> list[object]:
        new = ctx.ask("Rename to?", default=symbol)
        files = ctx.choose("Where?", ["a", "b"], multiple=True)
        sure = ctx.confirm(f"Change {len(files)} files?")
        ctx.say("done")
        notify("renamed", {"to": new})
        return [new, files, sure, ctx.emacs.call("point"), ctx.emacs.eval("(mark)")]

    answers = {
        "Rename to?": "bar",
        "Where?": ["b"],
        "confirm": True,
        "point": 5,
        "(mark)": Symbol("x"),
    }
    outcome = call(rename, symbol="foo", answers=answers)
    assert outcome.result == ["bar", ["b"], True, 5, "x"]
    assert [each.prompt for each in outcome.asked][:3] == [
        "Rename to?",
        "Where?",
        "Change 1 files?",
    ]
    assert outcome.asked[0] == Asked(
        "ask", "Rename to?", {"prompt": "Rename to?", "default": "foo"}
    )
    assert outcome.said == ["done"]
    assert outcome.notified == [("renamed", {"to": "bar"})]


def test_a_question_without_an_answer_says_so() -> None:
    def name(ctx: Context) -> str:
        return ctx.ask("Name?")

    assert "no answer to 'Name?'" in call(name).error.message
    assert call(name, answers={"Name?": Declined}).error.code == -32005
    assert call(name, answers={"Name?": 5}).error.code == -32803
    assert call(name, answers={"Name?": EmacsError("x", "error", [])}).error.code == -32603


def test_pieces_are_kept_and_joined() -> None:
    def count(n: int) -> Iterator[str]:
        for number in range(n):
            yield f"{number} "

    outcome = call(count, n=3)
    assert (outcome.partial, outcome.result) == (["0 ", "1 ", "2 "], "0 1 2 ")
    assert call(count, n=0).result == ""


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda ctx: ctx.ask(5), TypeError),
        (lambda ctx: ctx.ask("x", default=5), TypeError),
        (lambda ctx: ctx.choose("x", []), ValueError),
        (lambda ctx: ctx.choose("x", ["a", "a"]), ValueError),
        (lambda ctx: ctx.choose("x", ["a"], default="b"), ValueError),
        (lambda ctx: ctx.confirm(None), TypeError),
        (lambda ctx: ctx.emacs.call(car), TypeError),
        (lambda ctx: ctx.emacs.call("car", object()), TypeError),
        (lambda _: notify(None), TypeError),  # type: ignore[arg-type]
    ],
)
def test_mistakes_in_a_question_are_found_where_they_are_made(ask: Any, error: type) -> None:
    def method(ctx: Context) -> None:
        ask(ctx)

    assert type(call(method, answers={"x": "a"}).exception) is error


def car() -> None:
    """Do nothing; it is no name of a function."""
