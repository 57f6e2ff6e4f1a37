"""What workers cost: a busy neighbour, ten that are idle, a first call, `call` beside them.

Each row has a home folder of its own, with files of methods where a user has them; a file with a
block of PEP 723 is a worker, a process of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from typing import TYPE_CHECKING

from bench.install import BUILD, INSTALLED, PEERS, PYTHON, TOP, say
from bench.programs import DUET, PYZ, Program, environment
from bench.server import Server, memory_of, wakeups_of
from bench.traffic import Call, Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.goals import Samples

METHODS = ".config/duet-rpc/methods"
ALONE = "alone"
BY_HAND = "that Python by hand"
"""With a script that imports the package and prints the result: no duet_rpc, no request."""
SAME_FILE = "that Python, same file"
"""With a script that imports the file of methods, which imports duet_rpc, and answers a request."""
TRIPS = 300
WORKERS = 10
COMPUTES = 10.0
SETTLE = 0.3
IDLE = 2.0
PATIENCE = 120

COUNT = (PEERS / "methods.py").read_text()

BLOCK = "# /// script\n# ///\n"

IDLER = """from duet_rpc import method

@method
def idle_{number}(x: int) -> int:
    return x + {number}
"""

BUSY = """import os, time
from duet_rpc import method

@method
def compute(seconds: float, cores: list[int]) -> int:
    os.sched_setaffinity(0, cores)
    end, found = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        found += sum(range(1000))
    return found
"""

PACKED = """# /// script
# dependencies = ["iniconfig"]
# ///
import iniconfig
from duet_rpc import method

@method
def read(text: str) -> int:
    return len(iniconfig.IniConfig("", data=text).sections)
"""

HAND_WRITTEN = """import iniconfig
print(len(iniconfig.IniConfig("", data="[a]\\nb = 1").sections), flush=True)
"""

LOADS_THE_FILE = """import json, sys
sys.path[:0] = [sys.argv[1]]
sys.path.append(sys.argv[2])
import packed

length = int(sys.stdin.buffer.readline().split()[1])
sys.stdin.buffer.readline()
request = json.loads(sys.stdin.buffer.read(length))
result = getattr(packed, request["method"])(**request["params"])
print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""

IDLERS = {f"idle_{each}": BLOCK + IDLER.format(number=each) for each in range(WORKERS)}


def from_workers(rounds: int) -> Samples:
    """Measure all rows about workers."""
    samples = measure_beside(rounds)
    samples.update(measure_idle())
    samples.update(measure_first_call(rounds))
    samples.update(measure_terminal(rounds))
    return samples


def home_with(name: str, files: Mapping[str, str]) -> dict[str, str]:
    """Make a home folder with these files of methods; return the environment that names it."""
    home = BUILD / "workers" / name
    methods = home / METHODS
    methods.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (methods / f"{file}.py").write_text(text)
    return {"HOME": str(home)}


def measure_beside(rounds: int) -> Samples:
    """Time a quick method alone, and while a worker computes on another core."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        say("one core: a method beside a worker that computes is left out")
        return {}
    environ = home_with("beside", {"quick": COUNT, "busy": BLOCK + BUSY})
    found: dict[str, list[float]] = {DUET: [], ALONE: []}
    os.sched_setaffinity(0, {cores[-1]})  # the router and the workers inherit it
    try:
        with Server(Program(DUET, [PYTHON, PYZ, "rpc"], environ=environ)) as server:
            for number in range(rounds):
                traffic = Traffic(f"beside {number}")
                server.call(traffic.count())
                time.sleep(SETTLE)
                for name in (ALONE, DUET) if number % 2 else (DUET, ALONE):
                    if name == DUET:
                        begin_computing(server, traffic, cores[:-1])
                    trips = [server.call(traffic.count()) for _ in range(TRIPS)]
                    found[name].append(statistics.median(trips) * 1e6)
                    if name == DUET:
                        stop_computing(server)
    finally:
        os.sched_setaffinity(0, cores)
    return {"beside": found}


def begin_computing(server: Server, traffic: Traffic, cores: list[int]) -> None:
    """Let a worker compute; it is at work when this returns."""
    params = {"seconds": 0.01, "cores": cores}
    server.call(Call(traffic.next_id(), "compute", params, None))  # the first one starts it
    call = Call(0, "compute", {**params, "seconds": COMPUTES}, None)
    server.send(server.encode(call.body))
    time.sleep(SETTLE)


def stop_computing(server: Server) -> None:
    """Cancel it, and wait until it has stopped."""
    body = b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":0}}'
    server.send(server.encode(body))
    reply = json.loads(server.receive())
    assert reply["id"] == 0 and "error" in reply, reply  # noqa: PT018


def measure_idle() -> Samples:
    """Start ten workers; count how often anything wakes, and measure what each one takes."""
    environ = home_with("idle", {"quick": COUNT, **IDLERS})
    traffic = Traffic("ten workers")
    with Server(Program(DUET, [PYTHON, PYZ, "rpc"], environ=environ)) as server:
        for name in IDLERS:
            server.call(Call(traffic.next_id(), name, {"x": 1}, None))
        status = server.ask("gateway/status", {})
        time.sleep(3.0)  # by now each of them has imported loguru, and sleeps
        workers = [each["pid"] for each in status["backends"] if each["name"] != "main"]
        assert len(workers) == WORKERS, status
        everybody = [server.process.pid, *workers]
        before = [wakeups_of(each) for each in everybody]
        time.sleep(IDLE)
        after = [wakeups_of(each) for each in everybody]
        memory = [memory_of(each) for each in workers]
    woken = [b - a for a, b in zip(before, after) if a is not None and b is not None]
    return {
        "workers_wakeups": {DUET: [sum(woken) / IDLE] if woken else []},
        "worker_memory": {DUET: [each for each in memory if each is not None]},
    }


def measure_first_call(rounds: int) -> Samples:
    """Time the first call of a worker whose environment exists, and its Python by hand."""
    environ = home_with("packed", {"packed": PACKED})
    script = BUILD / "workers" / "by_hand.py"
    script.write_text(HAND_WRITTEN)
    same = BUILD / "workers" / "same_file.py"
    same.write_text(LOADS_THE_FILE)
    folder = os.path.join(environ["HOME"], METHODS)
    found: dict[str, list[float]] = {DUET: [], BY_HAND: [], SAME_FILE: []}
    for number in range(-1, rounds):  # the first one makes the environment
        traffic = Traffic(f"first {number}")
        with Server(Program(DUET, [PYTHON, PYZ, "rpc"], environ=environ)) as server:
            server.call(traffic.version())
            text = f"[{traffic.next_id()}]\nword = {traffic.next_id()}"
            first = Call(traffic.next_id(), "read", {"text": text}, 1)
            try:
                took = server.call(first)
            except AssertionError as error:
                say(f"the first call of a worker is left out: {str(error)[-300:]}")
                return {}
            status = server.ask("gateway/status", {})
        python = status["backends"][0]["python"]
        if number >= 0:
            found[DUET].append(took * 1e3)
            found[BY_HAND].append(time_command([python, str(script)], {}) * 1e3)
            words = [python, str(same), folder, str(TOP)]
            found[SAME_FILE].append(time_command(words, {}, data=server.encode(first.body)) * 1e3)
    return {"first_call": found}


def measure_terminal(rounds: int) -> Samples:
    """Time `duet-rpc call` of a method in a plain file beside ten files that are workers."""
    environ = home_with("terminal", {"quick": COUNT, **IDLERS})
    programs = {"call_pyz": [PYTHON, PYZ]}
    if (INSTALLED / "ready").exists():
        programs["call_installed"] = [str(INSTALLED / "bin" / "duet-rpc")]
    found: Samples = {key: {DUET: []} for key in programs}
    for number in range(-1, rounds):  # the first one fills caches
        traffic = Traffic(f"terminal {number}")
        for key, program in programs.items():
            call = traffic.count()
            words = [*program, "call", call.method, json.dumps(call.params)]
            took = time_command(words, environ, str(call.result)) * 1e3
            if number >= 0:
                found[key][DUET].append(took)
    return found


def time_command(
    words: list[str], environ: dict[str, str], expected: str = "", data: bytes = b""
) -> float:
    """Run a command to its end; return the seconds that it took."""
    before = time.perf_counter()
    done = subprocess.run(
        words,
        env={**environment(), **environ},
        input=data.decode(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    took = time.perf_counter() - before
    assert not expected or done.stdout.strip() == expected, (words, done.stdout)
    return took
