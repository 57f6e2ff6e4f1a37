"""The gateway: what it adds to a round trip, and what a hundred backends do to it.

The same backend is spoken to directly, through the gateway and through rassumfrassum, a
multiplexer of language servers. All three run all the time and take turns; what counts is
by how much a round trip is longer than the direct one of the same turn.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from contextlib import contextmanager
from pathlib import Path

from bench.install import BUILD, PEERS, PYTHON, VENV
from bench.programs import ALONE, DUET, PYZ, RASS, Program
from bench.samples import number, ratio, spread
from bench.scaling import Table
from bench.server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rows import Samples

BACKEND = [PYTHON, "-I", "-S", str(PEERS / "backend.py")]
DIRECT = "direct"

# It does not read, and goes when its input is closed.
HANGS_UP = "import select; end = select.poll(); end.register(0, 0); end.poll()"
STUCK = [PYTHON, "-I", "-S", "-c", HANGS_UP]
FILLING = 60

PIECE = 1 << 16  # more, and each read would map memory and give it back
TRIPS = 200
BACKENDS = 100
IN_FLIGHT = 10_000
STUCK_TRIPS = 300
IDLE = 2.0

PARAMS = '{"textDocument":{"uri":"file:///project/words.py"},"position":{"line":41,"character":7}}'
HELLO = '{"processId":null,"rootUri":null,"capabilities":{"textDocument":{}}}'
ADDED = {"hover": "textDocument/hover", "completion": "textDocument/completion"}


class Speaker(Server):
    """A server that also says things unasked."""

    def __init__(self, program: Program, prefix: str = "") -> None:
        super().__init__(program)
        self._buffer = b""
        self._prefix = prefix

    def __enter__(self) -> Speaker:
        return self

    def request(self, id: int, method: str, params: str = "{}") -> bytes:
        """Make one request, in its frame."""
        name = self._prefix + method
        return frame(f'{{"jsonrpc":"2.0","id":{id},"method":"{name}","params":{params}}}')

    def send(self, data: bytes) -> None:
        """Write all of it."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._into, view) :]

    def message(self) -> bytes:
        """Read the next message."""
        while True:
            head, blank, rest = self._buffer.partition(b"\r\n\r\n")
            length = int(head[15:]) if blank else 0
            if blank and len(rest) >= length:
                self._buffer = rest[length:]
                return rest[:length]
            piece = os.read(self._out, PIECE)
            assert piece, "the program went away"
            self._buffer += piece

    def reply(self) -> bytes:
        """Read the next reply."""
        body = self.message()
        while b'"method"' in body[:60]:
            body = self.message()
        return body

    def ask(self, id: int, method: str, params: str = "{}") -> bytes:
        """Make one call."""
        self.send(self.request(id, method, params))
        return self.reply()

    def trips(self, method: str, count: int) -> list[float]:
        """Make calls one after the other; return the microseconds of each."""
        took = []
        for at in range(count):
            data = self.request(1000 + at, method, PARAMS)
            before = time.perf_counter()
            self.send(data)
            self.reply()
            took.append((time.perf_counter() - before) * 1e6)
        return took


def frame(text: str) -> bytes:
    """Put a text into a frame."""
    body = text.encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def gateway(name: str, backends: dict[str, list[str]], dialect: str = "plain") -> Program:
    """Write a configuration; return the program that serves it."""
    path = BUILD / f"{name}.toml"
    path.write_text(
        "\n".join(
            f'[backends.{each}]\ncommand = {json.dumps(command)}\ndialect = "{dialect}"'
            for each, command in backends.items()
        )
        + "\n"
    )
    return Program(DUET, [PYTHON, PYZ, "gateway"], environ={"DUET_RPC_CONFIG": str(path)})


@contextmanager
def one_core() -> Iterator[None]:
    """Stay on one core, with all that is started meanwhile."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(mine)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def added(rounds: int) -> Samples:
    """Measure what is added to a round trip, in microseconds."""
    rass = VENV / "bin" / "rass"
    samples: Samples = {}
    with one_core(), Speaker(Program(DIRECT, BACKEND)) as direct:
        speakers = {DUET: Speaker(gateway("added", {"b": BACKEND}, "lsp"), "b/")}
        if rass.exists():
            command = [str(rass), "--log-level", "silent", "--", *BACKEND]
            speakers[RASS] = Speaker(Program(RASS, command))
        try:
            for each in (direct, *speakers.values()):
                assert b'"result"' in each.ask(1, "initialize", HELLO)
                size = len(each.ask(2, "textDocument/completion", PARAMS))
                assert size > 20_000, "not the reply that was expected"
            time.sleep(0.5)
            for at in range(rounds):
                for key, method in ADDED.items():
                    base = statistics.median(direct.trips(method, TRIPS))
                    for name in sorted(speakers, reverse=bool(at % 2)):
                        took = statistics.median(speakers[name].trips(method, TRIPS))
                        samples.setdefault(key, {}).setdefault(name, []).append(took - base)
        finally:
            for each in speakers.values():
                each.__exit__()
    return samples


def in_flight() -> tuple[Samples, Table]:
    """Keep ten thousand requests in flight; look at the memory."""
    names = [f"b{each}" for each in range(BACKENDS)]
    with Speaker(gateway("hundred", dict.fromkeys(names, BACKEND))) as server:
        before = time.perf_counter()
        server.send(b"".join(server.request(at, f"{name}/x") for at, name in enumerate(names)))
        assert len({server.reply() for _ in names}) == BACKENDS
        started = time.perf_counter() - before
        quiet = server.memory()
        before = time.perf_counter()
        for at in range(IN_FLIGHT):
            server.send(server.request(at, f"{names[at % BACKENDS]}/hold"))
        status = json.loads(server.ask(IN_FLIGHT, "gateway/status"))
        assert status["result"]["pending"] == IN_FLIGHT
        held = time.perf_counter() - before
        before = time.perf_counter()
        note = '{{"jsonrpc":"2.0","method":"{}/release"}}'
        server.send(b"".join(frame(note.format(name)) for name in names))
        ids = {json.loads(server.reply())["id"] for _ in range(IN_FLIGHT)}
        answered = time.perf_counter() - before
        assert ids == set(range(IN_FLIGHT)), "not all were answered"
        peak = peak_memory(server.pid)
    line = [
        f"{number(started * 1e3)} ms",
        f"{number(held * 1e3)} ms",
        f"{number(answered * 1e3)} ms",
        "-" if quiet is None else f"{number(quiet)} MB",
        "-" if peak is None else f"{number(peak)} MB",
    ]
    title = f"{BACKENDS} backends, {IN_FLIGHT:,} requests in flight at once, all answered"
    heads = ["all started", "sent", "answered", "memory before", "at most"]
    return {"flight_memory": {DUET: [] if peak is None else [peak]}}, Table(title, heads, [line])


def peak_memory(pid: int) -> float | None:
    """Return the most memory that a process ever had, in MB."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def stuck(rounds: int) -> tuple[Samples, Table]:
    """Measure round trips beside a backend that never reads and whose queue is full.

    One gateway, whose backend is stuck and is not in turns: two of them, both at ease, differ
    by up to a tenth, by where their memory happens to lie.
    """
    trips: dict[str, list[list[float]]] = {DUET: [], ALONE: []}
    with one_core(), Speaker(gateway("stuck", {"b": BACKEND, "stuck": STUCK})) as server:
        server.ask(1, "b/x")
        for at in range(rounds):
            for name in sorted(trips, reverse=bool(at % 2)):
                refused = fill(server) if name == DUET else 0
                time.sleep(0.1)
                trips[name].append(server.trips("b/textDocument/hover", STUCK_TRIPS))
                if name == DUET:
                    empty(server, FILLING - refused)
    parts = {
        part: {name: [percentile(each, part) for each in trips[name]] for name in trips}
        for part in (50, 99)
    }
    lines = [[name, *(str(spread(parts[part][name])) for part in parts)] for name in (ALONE, DUET)]
    lines.append(["ratio", *(str(ratio(each[DUET], each[ALONE])) for each in parts.values())])
    title = "Round trips in µs, one backend beside another that never reads"
    return {"stuck": parts[50]}, Table(title, ["", "p50", "p99"], lines)


def fill(server: Speaker) -> int:
    """Send more than a queue holds; return how many requests were refused."""
    large = '{"text":"' + "x" * 100_000 + '"}'
    server.send(b"".join(server.request(at, "stuck/x", large) for at in range(FILLING)))
    refused, body = 0, server.ask(FILLING, "version")
    while b'"version"' not in body:
        assert b"queue-full" in body, "the queue was not full"
        refused, body = refused + 1, server.reply()
    assert refused, "the queue was not full"
    return refused


def empty(server: Speaker, kept: int) -> None:
    """Start what is stuck again, and read the errors of what it had not answered."""
    server.send(server.request(FILLING, "gateway/restart", '{"backend":"stuck"}'))
    for _ in range(kept + 1):
        server.reply()
    while b"stopping" in server.ask(FILLING, "gateway/status"):
        time.sleep(0.01)


def percentile(values: list[float], part: int) -> float:
    """Return the value that this part of a hundred lies below."""
    return sorted(values)[len(values) * part // 100]


def idle() -> Samples:
    """Count how often a gateway wakes with nothing to do."""
    both = {"a": BACKEND, "b": BACKEND}
    with Speaker(gateway("idle", both)) as server:
        for name in both:
            server.ask(1, f"{name}/x")
        time.sleep(1.0)
        before = server.wakeups()
        time.sleep(IDLE)
        after = server.wakeups()
        memory = server.memory()
    quiet = [] if before is None or after is None else [(after - before) / IDLE]
    return {
        "gateway_idle": {DUET: quiet},
        "gateway_memory": {DUET: [] if memory is None else [memory]},
    }


def measure(rounds: int) -> tuple[Samples, list[Table]]:
    """Measure all of it."""
    samples = {**added(rounds), **idle()}
    held, flight = in_flight()
    delays, beside = stuck(rounds)
    return {**samples, **held, **delays}, [flight, beside]
