"""The other wires: tiny round trips over each framing, and MCP beside its Python SDK.

    python -m bench.wires [ROUNDS]

As everywhere in the bench, the programs take turns, and ratios are taken within a round.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from dataclasses import dataclass

from bench.install import BASE, BUILD, PEERS, PYTHON, TOP, install, once, run, say
from bench.programs import DUET, PYZ, Program, duet
from bench.requests import FIRST_ID
from bench.samples import ratio, spread
from bench.server import Server
from bench.sessions import SETTLE, trips

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    from bench.rows import Samples

    Each = TypeVar("Each")

REQUIREMENTS = TOP / "tests" / "interop" / "clients" / "requirements.txt"
SDK = BUILD / "mcp"
LOW_LEVEL = "SDK's low-level Server"
FASTMCP = "SDK's MCPServer (FastMCP)"

START, FIRST_TOOL, TRIP = "start", "first tool", "trip"
TITLES = {
    START: "MCP: spawn to first reply, ms",
    FIRST_TOOL: "MCP: spawn to first result of a tool, ms",
    TRIP: "MCP: tools/call round trip p50, one core, µs",
}
GOALS = {START: 8.0, TRIP: 5.0}
"""How many times faster than each server of the SDK."""


@dataclass(frozen=True)
class Framing:
    """How one wire puts a message into a frame, and sees the end of a reply."""

    name: str
    encode: Callable[[bytes], bytes]
    whole: Callable[[bytes], bool]


def _content_length_whole(reply: bytes) -> bool:
    head, blank, body = reply.partition(b"\r\n\r\n")
    return bool(blank) and len(body) >= int(head[16:])


FRAMINGS = (
    Framing(
        "content-length",
        lambda body: b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
        _content_length_whole,
    ),
    Framing(
        "length-prefixed",
        lambda body: struct.pack(">I", len(body)) + body + b"\n",
        lambda reply: len(reply) > 4 and len(reply) >= 5 + struct.unpack(">I", reply[:4])[0],
    ),
    Framing("lines", lambda body: body + b"\n", lambda reply: reply.endswith(b"\n")),
)
LINES = FRAMINGS[-1]


class Peer(Server):
    """A server behind one of the wires."""

    def __init__(self, program: Program, framing: Framing) -> None:
        super().__init__(program)
        self._framing = framing

    def __enter__(self) -> Peer:
        return self

    def ask(self, number: int, method: str, params: str = "{}") -> bytes:
        """Make one call, and learn the size of its reply."""
        reply = bytearray()
        data = self.frame(number, method, params)
        self._exchange(data, reply, lambda: self._framing.whole(bytes(reply)))
        self.size = len(reply)
        assert b'"result"' in reply, bytes(reply[:300])
        return bytes(reply)

    def tell(self, text: str) -> None:
        """Send what wants no answer."""
        os.write(self._into, self._framing.encode(text.encode()))

    def frame(self, number: int, method: str, params: str = "{}") -> bytes:
        """Make one request, in its frame."""
        id = FIRST_ID + number
        text = f'{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}'
        return self._framing.encode(text.encode())

    def trips(self, method: str, params: Callable[[int], str]) -> float:
        """Make many small calls; return the median in microseconds."""
        self.ask(0, method, params(0))
        return trips(self, lambda number: self.frame(number, method, params(number)))


def measure_framings(rounds: int) -> Samples:
    """Make tiny round trips over each framing, in turn."""
    found: dict[str, list[float]] = {each.name: [] for each in FRAMINGS}
    for number in range(rounds):
        for framing in turn(FRAMINGS, number):
            program = Program(DUET, duet("--framing", framing.name))
            with Peer(program, framing) as peer:
                peer.ask(0, "version")
                time.sleep(SETTLE)
                found[framing.name].append(peer.trips("version", lambda _: "{}"))
    return {"framing": found}


def mcp_programs() -> list[Program]:
    """Return those that are there: one tool each, the same."""
    methods = str(PEERS / "mcp_methods.py")
    found = [Program(DUET, [PYTHON, PYZ, "mcp", "--methods", methods])]
    if (SDK / "ready").exists():
        python = str(SDK / "bin" / "python")
        found.append(Program(LOW_LEVEL, [python, str(PEERS / "mcp_lowlevel.py")]))
        found.append(Program(FASTMCP, [python, str(PEERS / "mcp_server.py")]))
    return found


def measure_mcp(rounds: int) -> Samples:
    """Start each MCP server, shake hands, call its tool, in turn."""
    programs = mcp_programs()
    samples: Samples = {key: {each.name: [] for each in programs} for key in TITLES}
    for number in range(-1, rounds):  # the round before the first fills caches
        for program in turn(programs, number):
            for key, value in talk_mcp(program).items():
                if number >= 0:
                    samples[key][program.name].append(value)
    return samples


def talk_mcp(program: Program) -> dict[str, float]:
    """Measure one server once."""
    client = '"capabilities":{},"clientInfo":{"name":"bench","version":"1"}'

    def call(number: int) -> str:
        # No two the same, and all of one size.
        return f'{{"name":"add","arguments":{{"a":{FIRST_ID + number},"b":1}}}}'

    start = time.perf_counter()
    with Peer(program, LINES) as peer:
        peer.ask(0, "initialize", f'{{"protocolVersion":"2025-11-25",{client}}}')
        first = time.perf_counter() - start
        peer.tell('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        result = json.loads(peer.ask(1, "tools/call", call(1)))["result"]
        tool = time.perf_counter() - start
        assert result["structuredContent"] == {"result": FIRST_ID + 2}, result
        time.sleep(SETTLE)
        return {START: first * 1e3, FIRST_TOOL: tool * 1e3, TRIP: peer.trips("tools/call", call)}


def turn(those: Sequence[Each], number: int) -> Iterator[Each]:
    """Let another one be first each time."""
    return (those[(number + at) % len(those)] for at in range(len(those)))


def install_sdk() -> None:
    """Get the SDK into a venv of its own."""
    if sys.version_info < (3, 10):
        say("the SDK of MCP needs Python 3.10: it is left out")
        return

    def make() -> bool:
        pip = [str(SDK / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
        return (
            run([BASE, "-m", "venv", str(SDK)], "no venv")
            and run([*pip, "install", "-r", str(REQUIREMENTS)], "the SDK of MCP is left out")
            # It comes with a file that costs every start.
            and run([*pip, "uninstall", "--yes", "setuptools"], "setuptools stays")
        )

    once(SDK, REQUIREMENTS.read_text() + BASE, make)


def wires(rounds: int) -> dict[str, object]:
    """Measure, print; return all of it."""
    install_sdk()
    framings = measure_framings(rounds)
    print("\ntiny round trip p50 over each framing, one core, µs")
    measured = framings["framing"]
    base = measured[FRAMINGS[0].name]
    for name, values in measured.items():
        print(f"  {name:26} {spread(values)!s:26} {ratio(values, base)} of {FRAMINGS[0].name}")
    mcp = measure_mcp(rounds)
    for key, title in TITLES.items():
        print(f"\n{title}")
        print_times_faster(mcp[key], GOALS.get(key))
    return {"framings": framings, "mcp": mcp, "rounds": rounds}


def print_times_faster(measured: dict[str, list[float]], goal: float | None) -> None:
    """Print medians, and how many times faster than each other one this project is."""
    for name, values in measured.items():
        line = f"  {name:26} {spread(values)!s:26}"
        if name != DUET:
            faster = ratio(values, measured[DUET])
            line += f" {DUET} is {faster} times faster"
            if goal is not None:
                verdict = "met" if faster.median >= goal else "NOT MET"
                line += f"; goal {goal:g}: {verdict}"
        print(line.rstrip())


if __name__ == "__main__":
    install()
    wires(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
