"""What ends the backends where the gateway can't: it was killed without warning.

A shell of a few lines reads from a pipe which process groups live; the pipe ends with
the gateway, however that ends. Linux alone could signal a child at its parent's death,
and it would signal the child and not what that child had started.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress

# Each line is all of the groups that live.
SCRIPT = """
trap '' INT TERM HUP QUIT
while read -r line; do groups=$line; done
[ "$groups" ] || exit
for group in $groups; do kill -s TERM -- "-$group"; done
sleep 1
for group in $groups; do kill -s KILL -- "-$group"; done
"""


class Watchdog:
    """Started before the first backend, and again before another where it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def start(self) -> None:
        """Be there before the first backend is."""
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

    def _tell(self) -> None:
        if self._process is not None:
            with suppress(OSError):  # it was killed; the next backend starts it again
                line = " ".join(map(str, self._groups)) + "\n"
                self._process.stdin.write(line.encode())  # type: ignore[union-attr]

    def add(self, group: int) -> None:
        """End this process group if we do not live to do it."""
        self._groups.add(group)
        self._tell()

    def remove(self, group: int) -> None:
        """Forget a process group that is gone."""
        self._groups.discard(group)
        self._tell()
