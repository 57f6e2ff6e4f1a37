"""A daemon with a method that runs, the ways to ask it to leave, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Any

from tests.support import SOURCE, TOP, Client, daemon, wait_for_file

WINDOW = 2.0
HANGING = [*SOURCE, "rpc", "--methods", str(TOP / "tests" / "hanging_methods.py")]

SIGNALS = [SIGINT, SIGTERM, SIGHUP]
TRIGGERS: dict[str, Callable[[Client], None]] = {
    "EOF": lambda client: client.close_input(),
    **{number.name: lambda client, n=number: client.signal(n) for number in SIGNALS},  # type: ignore[misc]
}


@contextmanager
def running(folder: Path, data: bytes, **options: Any) -> Iterator[Client]:
    """Run a daemon in which the first of some requests is being worked on."""
    mark = folder / "running"
    mark.unlink(missing_ok=True)
    with daemon(HANGING, {"TEST_MARK": str(mark)}, **options) as client:
        client.send(data)
        wait_for_file(mark)
        yield client


def end(client: Client) -> tuple[int, str]:
    """Wait for the end; return exit code and log."""
    client.process.stdin = None
    _, err = client.process.communicate(timeout=20)
    return client.process.returncode, err.decode()
