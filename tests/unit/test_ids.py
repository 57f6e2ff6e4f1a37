"""The remapper: ids that differ in type alone, thousands at once, threads."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from duet_rpc.jsonrpc.ids import InFlight, Remapper

SIMILAR = ["1", '"1"', "1.0", "1e0", "-0", "0", "null", '"null"', '""', "true", '"\\ud800"']


def test_ids_that_python_takes_for_equal_are_different() -> None:
    ids = Remapper()
    ours = [ids.remap(each, "a") for each in SIMILAR]
    assert ours == list(range(1, len(SIMILAR) + 1))
    assert [ids.restore(each) for each in ours] == [(each, "a") for each in SIMILAR]
    assert ids.pending_count == 0


def test_restore_is_for_once() -> None:
    ids = Remapper()
    id = ids.remap("7", "a")
    assert ids.restore(id) == ("7", "a")
    for unknown in (id, 0, -1, 99):
        with pytest.raises(KeyError):
            ids.restore(unknown)


def test_an_id_in_flight_is_refused_whichever_backend_it_is_for() -> None:
    ids = Remapper()
    first = ids.remap("7", "a")
    for backend in "ab":
        with pytest.raises(InFlight):
            ids.remap("7", backend)
    assert ids.pending_count == 1
    assert ids.find("7") == first
    assert ids.restore(first) == ("7", "a")
    assert ids.restore(ids.remap("7", "b")) == ("7", "b")


def test_askers_that_do_not_know_of_each_other_may_use_one_id() -> None:
    ids = Remapper()
    first, second = ids.remap("7", "a", "a"), ids.remap("7", "b", "b")
    assert first != second
    assert (ids.find("7", "a"), ids.find("7", "b"), ids.find("7")) == (first, second, None)
    with pytest.raises(InFlight):
        ids.remap("7", "a", "a")
    assert (ids.restore(second), ids.restore(first)) == (("7", "b"), ("7", "a"))


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=1000), st.randoms())
def test_ten_backends_interleaved(steps: list[tuple[int, bool]], order: random.Random) -> None:
    ids, flying = Remapper(), dict[int, tuple[str, str]]()
    for number, (backend, leave) in enumerate(steps):
        flying[ids.remap(str(number), f"b{backend}")] = (str(number), f"b{backend}")
        if leave:
            one = order.choice(list(flying))
            assert ids.restore(one) == flying.pop(one)
    assert ids.pending_count == len(flying)
    for one in order.sample(list(flying), len(flying)):
        assert ids.restore(one) == flying.pop(one)
    assert ids.pending_count == 0


def test_a_thousand_on_each_of_ten_backends_in_flight_at_once() -> None:
    ids = Remapper()
    pairs = [(str(number), f"b{number % 10}") for number in range(10_000)]
    ours = {ids.remap(*pair): pair for pair in pairs}
    assert sorted(ours) == list(range(1, 10_001))
    assert ids.pending_count == 10_000
    shuffled = list(ours)
    random.Random(0).shuffle(shuffled)  # noqa: S311
    assert all(ids.restore(each) == ours[each] for each in shuffled)
    assert ids.pending_count == 0


class Books(RuleBasedStateMachine):
    """Any order of steps: what was taken in comes out once, as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = Remapper()
        self.flying: dict[int, tuple[str, str]] = {}
        self.last = 0

    @rule(original=st.sampled_from(SIMILAR), backend=st.sampled_from("abc"))
    def take_in(self, original: str, backend: str) -> None:
        """Take a request in, or refuse it."""
        if original in [each for each, _ in self.flying.values()]:
            with pytest.raises(InFlight):
                self.ids.remap(original, backend)
            return
        id = self.ids.remap(original, backend)
        assert id > self.last
        self.last = id
        self.flying[id] = (original, backend)

    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        """Let one of those in flight go."""
        if self.flying:
            id = data.draw(st.sampled_from(sorted(self.flying)))
            assert self.ids.find(self.flying[id][0]) == id
            assert self.ids.restore(id) == self.flying.pop(id)

    @invariant()
    def counts(self) -> None:
        """Compare the count."""
        assert self.ids.pending_count == len(self.flying)


TestBooks = Books.TestCase


def test_ten_threads_at_once() -> None:
    ids = Remapper()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(thread: int) -> set[int]:
        seen = set()
        for number in range(2000):
            original = f'"{thread}-{number}"'
            id = ids.remap(original, f"b{thread}")
            seen.add(id)
            try:  # all fight for this one; one at a time has it
                common = ids.remap("1", f"b{thread}")
            except InFlight:
                pass
            else:
                seen.add(common)
                assert ids.restore(common) == ("1", f"b{thread}")
            assert ids.restore(id) == (original, f"b{thread}")
        return seen

    try:
        with ThreadPoolExecutor(10) as pool:
            seen = list(pool.map(work, range(10)))
    finally:
        sys.setswitchinterval(interval)
    assert sum(map(len, seen)) == len(set().union(*seen)), "no id was given twice"
    assert ids.pending_count == 0
