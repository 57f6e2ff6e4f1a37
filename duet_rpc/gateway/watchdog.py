"""Ends the backends where the gateway can't, because it was killed.

A shell of a few lines reads from a pipe which process groups are running; the pipe ends with
the gateway, however that ends. Linux alone could signal a child when its parent exits, and
it would signal the child but not what that child has started.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress

# Each line holds all groups that are running.
SCRIPT = """
trap '' INT TERM HUP QUIT
while read -r line; do groups=$line; done
[ "$groups" ] || exit
for group in $groups; do kill -s TERM -- "-$group"; done
sleep 1
for group in $groups; do kill -s KILL -- "-$group"; done
"""


class Watchdog:
    """A shell that is started before the first backend, and again where it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def start(self) -> None:
        """Start the shell, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        with suppress(OSError):
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                bufsize=0,
                start_new_session=True,  # whoever kills our group must not kill it too
            )

    def add(self, group: int) -> None:
        """End this process group if the gateway can't."""
        self._groups.add(group)
        self._write_groups()

    def remove(self, group: int) -> None:
        """Forget a process group that is gone."""
        self._groups.discard(group)
        self._write_groups()

    def _write_groups(self) -> None:
        if self._process is not None:
            with suppress(OSError):  # it was killed; the next backend starts it again
                line = " ".join(map(str, self._groups)) + "\n"
                self._process.stdin.write(line.encode())  # type: ignore[union-attr]
