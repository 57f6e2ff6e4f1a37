"""Ends the backends where the gateway can't, because it was killed.

A shell of a few lines reads from a pipe which process groups are running; the pipe ends with
the gateway, however that ends. A process that is being started writes its own group to the
pipe before it becomes a backend, and until then it holds the pipe open: there is no moment
at which the gateway could be killed and the group not be known. Linux alone could signal a
child when its parent exits, and it would signal the child but not what that child has
started.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

from duet_rpc.gateway.leftovers import VARIABLE

# A line holds all groups that are running, or after a plus sign one more. What has left its
# group is found by its mark, see `leftovers`.
SCRIPT = """
trap '' INT TERM HUP QUIT
while read -r line; do
  case $line in
    +*) groups="$groups ${line#+}" ;;
    *) groups=$line ;;
  esac
done
marked() { [ -d /proc/self ] && grep -lsF -e "$1" /proc/[0-9]*/environ | tr -cd '0-9\\n'; }
signal_all() {
  for group in $groups; do kill -s "$1" -- "-$group"; done
  for pid in $(marked "$2"); do kill -s "$1" "$pid"; done
}
[ "$groups" ] || [ "$(marked "$1")" ] || exit
signal_all TERM "$1"
sleep 1
signal_all KILL "$1"
groups=
sleep 1
signal_all KILL "$1"
"""


class Watchdog:
    """A shell that is started before the first backend, and again where it was killed."""

    def __init__(self, prefix: str) -> None:
        self._mark = f"{VARIABLE}={prefix}"
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def start(self) -> None:
        """Start the shell, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        with suppress(OSError):
            self._process = process = subprocess.Popen(
                ["/bin/sh", "-c", SCRIPT, "sh", self._mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # Not ours: a gateway may be behind a gateway, which would take this for
                # something that a backend has left behind.
                env={"PATH": os.environ.get("PATH", os.defpath)},
                bufsize=0,
                start_new_session=True,  # whoever kills our group must not kill it too
            )
            if process.stdin is not None:
                os.set_blocking(process.stdin.fileno(), False)  # should somebody stop the shell
            self._write_groups()

    def add_self(self) -> None:
        """End this process group too; called in a process that becomes a backend."""
        self._write(f"+{os.getpid()}\n")

    def add(self, group: int) -> None:
        """End this process group if the gateway can't."""
        self._groups.add(group)
        self._write_groups()

    def remove(self, group: int) -> None:
        """Forget a process group that is gone."""
        self._groups.discard(group)
        self._write_groups()

    def forget_failed(self) -> None:
        """Forget the group of a process that has added itself and could not become a backend."""
        self._write_groups()

    def _write_groups(self) -> None:
        self._write(" ".join(map(str, self._groups)) + "\n")

    def _write(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was killed; the next backend starts it again
                self._process.stdin.write(line.encode())
