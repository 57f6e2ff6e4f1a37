"""The remapper and the tables of requests in flight: similar ids, thousands at once, threads."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from duet_rpc.jsonrpc.ids import IdRemapper
from duet_rpc.jsonrpc.values import ExactNumber
from duet_rpc.peer import Incoming, Outgoing

if TYPE_CHECKING:
    from duet_rpc.jsonrpc.messages import Id

SIMILAR: list[Id] = [
    1, "1", ExactNumber("1.0"), ExactNumber("1e0"), ExactNumber("-0"), 0, None, "null", "",
    "\ud800", ExactNumber("1e400"), ExactNumber("2e400"),
]  # fmt: skip


def test_similar_ids_are_different_ids() -> None:
    ids, received = IdRemapper(), Incoming[str]()
    ours = [ids.remap(each, "a") for each in SIMILAR]
    assert ours == list(range(1, len(SIMILAR) + 1))
    assert [ids.restore(each) for each in ours] == [(each, "a") for each in SIMILAR]
    assert ids.pending_count() == 0
    assert all(received.add(each, repr(each)) for each in SIMILAR)
    assert [received.pop(each) for each in SIMILAR] == [repr(each) for each in SIMILAR]


def test_an_id_is_restored_once() -> None:
    ids = IdRemapper()
    id = ids.remap(7, "a")
    assert ids.restore(id) == (7, "a")
    assert [ids.restore(unknown) for unknown in (id, 0, -1, 99)] == [None] * 4


def test_the_same_id_may_go_to_two_backends() -> None:
    ids = IdRemapper()
    first, second = ids.remap(7, "a"), ids.remap(7, "b")
    assert first != second
    assert (ids.restore(second), ids.restore(first)) == ((7, "b"), (7, "a"))


def test_an_id_in_flight_is_refused_and_the_first_kept() -> None:
    received = Incoming[object]()
    first, second = object(), object()
    assert received.add(7, first)
    assert not received.add(7, second)
    assert received.get(7) is first
    assert received.pop(7) is first
    assert received.pop(7) is None
    assert received.add(7, second)


def test_what_was_sent_gets_fresh_ids_and_ends_once() -> None:
    sent = Outgoing[str]()
    ids = [sent.add(each) for each in "abc"]
    assert ids == [1, 2, 3]
    assert (sent.pop(2), sent.pop(2)) == ("b", None)
    assert list(sent) == ["a", "c"]
    assert len(sent) == 2


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=1000), st.randoms())
def test_ten_backends_interleaved(steps: list[tuple[int, bool]], order: random.Random) -> None:
    ids = IdRemapper()
    pending: dict[int, tuple[Id, str]] = {}
    for number, (backend, leave) in enumerate(steps):
        pending[ids.remap(number, f"b{backend}")] = (number, f"b{backend}")
        if leave:
            one = order.choice(list(pending))
            assert ids.restore(one) == pending.pop(one)
    assert ids.pending_count() == len(pending)
    for one in order.sample(list(pending), len(pending)):
        assert ids.restore(one) == pending.pop(one)
    assert ids.pending_count() == 0


def test_ten_thousand_ids_in_flight_stay_apart() -> None:
    ids = IdRemapper()
    pairs = [(number, f"b{number % 10}") for number in range(10_000)]
    ours = {ids.remap(*pair): pair for pair in pairs}
    assert sorted(ours) == list(range(1, 10_001))
    assert ids.pending_count() == 10_000
    shuffled = list(ours)
    random.Random(0).shuffle(shuffled)  # noqa: S311
    assert all(ids.restore(each) == ours[each] for each in shuffled)
    assert ids.pending_count() == 0


class InFlight(RuleBasedStateMachine):
    """Any order of steps: what is remapped is restored once, as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = IdRemapper()
        self.pending: dict[int, tuple[Id, str]] = {}
        self.last = 0

    @rule(original=st.sampled_from(SIMILAR), backend=st.sampled_from("abc"))
    def remap(self, original: Id, backend: str) -> None:
        """Send a request."""
        id = self.ids.remap(original, backend)
        assert id > self.last
        self.last = id
        self.pending[id] = (original, backend)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Receive a reply to one of those in flight."""
        if self.pending:
            id = data.draw(st.sampled_from(sorted(self.pending)))
            assert self.ids.restore(id) == self.pending.pop(id)
            assert self.ids.restore(id) is None

    @invariant()
    def counts(self) -> None:
        """Compare the count."""
        assert self.ids.pending_count() == len(self.pending)


TestInFlight = InFlight.TestCase


def test_ten_threads_at_once() -> None:
    ids = IdRemapper()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(thread: int) -> set[int]:
        seen = set()
        for number in range(2000):
            pairs = [(f"{thread}-{number}", f"b{thread}"), ("common", f"b{thread}")]
            for pair in pairs:
                id = ids.remap(*pair)
                seen.add(id)
                assert ids.restore(id) == pair
                assert ids.restore(id) is None
        return seen

    try:
        with ThreadPoolExecutor(10) as pool:
            seen = list(pool.map(work, range(10)))
    finally:
        sys.setswitchinterval(interval)
    assert sum(map(len, seen)) == len(set().union(*seen)), "no id was given twice"
    assert ids.pending_count() == 0
