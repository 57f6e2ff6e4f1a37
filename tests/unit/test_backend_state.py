"""The states of a backend, its restarts and the requests that it owes a reply to."""

from __future__ import annotations

import time
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duet_rpc.gateway.loop import Loop
from duet_rpc.gateway.pending import Backlog, Call, PendingRequests
from duet_rpc.gateway.runtime import Times
from duet_rpc.gateway.state import TRANSITIONS, Event, InvalidTransition, State, StateMachine
from duet_rpc.gateway.supervisor import RestartPolicy
from duet_rpc.jsonrpc.messages import Notification
from duet_rpc.jsonrpc.values import RawJson


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS) == set(State)
    reached = {state for row in TRANSITIONS.values() for state in row.values()}
    assert reached == set(State)
    assert all(TRANSITIONS.values())


@given(st.lists(st.sampled_from(list(Event))))
def test_an_event_follows_the_table_or_is_refused(events: list[Event]) -> None:
    machine = StateMachine()
    for event in events:
        before = machine.state
        if event in TRANSITIONS[before]:
            machine.handle(event)
            assert machine.state is TRANSITIONS[before][event]
        else:
            with pytest.raises(InvalidTransition):
                machine.handle(event)
            assert machine.state is before


def test_a_stopping_backend_can_only_stop() -> None:
    assert TRANSITIONS[State.STOPPING] == {Event.STOPPED: State.STOPPED}


def test_restarts_come_later_and_later_until_it_is_given_up() -> None:
    times = Times()
    policy = RestartPolicy(times)
    delays = []
    for _ in range(6):
        policy.started()
        delays.append(policy.next_delay())
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, None]
    policy.reset()
    assert policy.next_delay() == 1.0


def test_a_stable_process_begins_with_the_first_delay() -> None:
    times = Times()
    times.stable = 0.01
    policy = RestartPolicy(times)
    assert [policy.next_delay(), policy.next_delay()] == [1.0, 2.0]
    policy.started()
    time.sleep(0.02)  # its life was stable
    assert policy.next_delay() == 1.0
    assert policy.next_delay() == 2.0, "a start that fails is not stable"


def call(method: str = "m") -> Call:
    return Call(method, lambda _outcome: None)


def test_requests_expire_in_the_order_of_their_deadlines() -> None:
    pending = PendingRequests(Loop(), 0.01, lambda: None)
    pending.add(1, call(), timed=False)
    for id in (2, 3, 4):
        pending.add(id, call())
    time.sleep(0.02)  # longer than a request may take
    pending.note_activity()
    assert pending.pop_expired() is None, "whatever the backend sends is a sign of life"
    time.sleep(0.02)  # and once more
    expired = [pending.pop_expired() for _ in range(4)]
    assert [found[0] if found else None for found in expired] == [2, 3, 4, None]
    assert pending.only() == 1


def test_no_time_passes_while_a_person_is_asked() -> None:
    pending = PendingRequests(Loop(), 0.01, lambda: None)
    pending.add(1, call())
    pending.handle_question("q")
    time.sleep(0.02)  # longer than a request may take
    assert pending.pop_expired() is None
    pending.handle_answer("q")
    time.sleep(0.02)  # and once more
    assert pending.pop_expired() is not None
    endless = PendingRequests(Loop(), 0.0, lambda: None)
    endless.add(1, call())
    assert endless.pop_expired() is None


def test_the_tokens_of_a_request_go_with_it() -> None:
    pending = PendingRequests(Loop(), inf, lambda: None)
    one, two = call(), call()
    one.tokens, two.tokens = ("a", "b"), ("c",)
    pending.add(1, one, timed=False)
    pending.add(2, two, timed=False)
    pending.tokens.update({"a": ("1", 1), "b": ("2", 1), "c": ("3", 2)})
    assert pending.pop(1) is one
    assert pending.pop(1) is None
    assert set(pending.tokens) == {"c"}
    assert pending.pop_all() == [two]
    assert not pending.tokens
    assert len(pending) == 0


def test_the_backlog_knows_its_size() -> None:
    backlog = Backlog()
    messages = [Notification("m", RawJson(f'"{"x" * id}"', None)) for id in range(3)]
    sizes = []
    for id, message in enumerate(messages):
        before = backlog.size
        backlog.put(id, message)
        sizes.append(backlog.size - before)
    assert sizes == [sizes[0], sizes[0] + 1, sizes[0] + 2]
    assert backlog.remove(1)
    assert not backlog.remove(1)
    assert backlog.size == sizes[0] + sizes[2]
    assert backlog.pop_all() == [messages[0], messages[2]]
    assert backlog.size == 0
