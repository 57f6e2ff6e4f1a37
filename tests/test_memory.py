"""Memory for large messages: taken at once, in large pages, and given back."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duet_rpc.server import memory
from tests.support import TOP, WITH_METHODS, daemon, request


def test_memory_comes_back_after_large_messages() -> None:
    text = {"_meta": {"text": "to be\n" * 1_200_000}}
    records = {"_meta": {"items": [{"a": i, "b": [str(i)], "c": {"d": i}} for i in range(150_000)]}}
    with daemon() as client:
        client.call("version")
        status = Path(f"/proc/{client.process.pid}/status")
        if not status.exists():
            pytest.skip("no /proc here")
        before = resident(status)
        for params in (text, text, records):
            assert client.call("version", params)
        assert settles_at(status, before + 10_000)


def test_memory_for_a_large_message_that_never_comes_is_given_back() -> None:
    with daemon([*WITH_METHODS, "2.0"]) as client:
        client.call("version")
        status = Path(f"/proc/{client.process.pid}/status")
        if not status.exists():
            pytest.skip("no /proc here")
        before = resident(status)
        client.send(b"Content-Length: 10000000\r\n\r\n" + b" " * 200_000)
        time.sleep(0.3)
        client.send(b" " * 200_000)
        assert settles_at(status, before + 13_000)  # its own ten million bytes at most
        time.sleep(2.2)
        assert client.call("version")
        assert settles_at(status, before + 3_000)


def test_a_large_message_has_large_pages_for_as_long_as_it_is_there() -> None:
    if not has_large_pages():
        pytest.skip("no large pages here")
    with daemon() as client:
        client.call("version")
        large = request(2, "version", {"_meta": {"text": "to be\n" * 1_200_000}})
        client.send(large[:-200_000])
        assert eventually(lambda: large_pages(client.process.pid) >= 2048)
        client.send(large[-200_000:])
        assert client.receive()["id"] == 2
        assert eventually(lambda: large_pages(client.process.pid) == 0)


def test_the_first_large_page_that_is_slow_to_come_is_the_last() -> None:
    assert min(pages_of_two_messages(slow=60.0)) >= 12288
    first, second = pages_of_two_messages(slow=-1.0)
    assert first <= 2048  # none, where the first piece was half in use
    assert second == 0


def pages_of_two_messages(slow: float) -> list[int]:
    """Make room for two messages; return how much of it was in large pages, in KB."""
    if not has_large_pages():
        pytest.skip("no large pages here")
    seen: list[int] = evaluate(
        f"memory.SLOW = {slow}; memory.make_room(15_000_000); seen = [large_pages('self')]\n"
        "memory.give_back(); memory.make_room(15_000_000); seen.append(large_pages('self'))\n"
        "print(seen)"
    )
    return seen


@pytest.mark.parametrize("accelerated", [False, True], ids=["json", "msgspec"])
def test_there_is_room_for_all_that_parsing_takes(accelerated: bool) -> None:
    if memory._load_libc() is None:
        pytest.skip("a C library without mallopt")
    faults = evaluate(
        "import json; from resource import RUSAGE_SELF, getrusage\n"
        "from duet_rpc.protocol import large\n"
        "def body(count):\n"
        "    params = ['to be, or\\n' * count]\n"
        "    return json.dumps({'jsonrpc': '2.0', 'method': 'm', 'params': params}).encode()\n"
        "large.parse_large(body(1), False)\n"
        f"if {accelerated}: large.accelerate()\n"
        "text = body(700_000); memory.give_back(); memory.make_room(large.room_for(len(text)))\n"
        "before = getrusage(RUSAGE_SELF).ru_minflt\n"
        "message = large.parse_large(bytearray(text), False)\n"
        "assert len(message.params[0]) == 7_000_000\n"
        "print(getrusage(RUSAGE_SELF).ru_minflt - before)"
    )
    assert faults < 300  # without room there are more than 5,000


def test_what_is_touched_later_comes_in_small_pages_again() -> None:
    """Or a daemon that keeps a little of a large message would grow by 2 MB at a time."""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("no /proc here")
    assert not evaluate(
        "memory.make_room(15_000_000); print(' hg' in Path('/proc/self/smaps').read_text())"
    )


def evaluate(code: str) -> Any:
    """Run code in a process of its own; return what it prints."""
    imports = (
        "from pathlib import Path; from duet_rpc.server import memory\n"
        "from tests.test_memory import large_pages\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", imports + code],
        capture_output=True,
        text=True,
        cwd=TOP,
        timeout=20,
        check=True,
    )
    return ast.literal_eval(done.stdout)


def test_what_parses_large_messages_is_loaded_after_the_first_of_them() -> None:
    with daemon() as client:
        client.call("version")
        maps = Path(f"/proc/{client.process.pid}/maps")
        if not maps.exists():
            pytest.skip("no /proc here")

        def is_loaded() -> bool:
            time.sleep(0.5)
            return "/msgspec/" in maps.read_text()

        assert not is_loaded()
        client.call("version", {"_meta": {"text": "x" * 900_000}})
        assert not is_loaded()
        client.call("version", {"_meta": {"text": "x" * 1_100_000}})
        assert is_loaded()
        client.call("version", {"_meta": {"text": "x" * 1_100_000}})


def settles_at(status: Path, most: int) -> bool:
    return eventually(lambda: resident(status) <= most)  # KB


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds()


def resident(status: Path) -> int:
    return int(status.read_text().partition("VmRSS:")[2].split()[0])


def has_large_pages() -> bool:
    # In a process of its own, so that it is gone.
    return bool(
        evaluate(
            "import mmap\n"
            "try:\n"
            "    room = mmap.mmap(-1, 2 ** 24, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
            "    room.madvise(mmap.MADV_HUGEPAGE); room.write(bytes(2 ** 24))\n"
            "    print(large_pages('self') >= 12288)\n"
            "except (AttributeError, OSError):\n"
            "    print(False)"
        )
    )


def large_pages(pid: int | str) -> int:
    seen = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(seen.partition("AnonHugePages:")[2].split()[0])  # KB
