"""The real program, except that it starts other daemons.

python tests/with_daemon.py DAEMON [WORDS]... where DAEMON is `methods` for the daemon with the
methods of the tests, a behaviour of the fake daemon, `real` for the real one, or `nowhere` for
a program that does not exist.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from duet_rpc import cli, program

HERE = Path(__file__).parent
DAEMON = sys.argv[1]


def daemon_command(flags: Sequence[str] = (), command: str = "rpc") -> list[str]:
    assert command == "rpc"
    if DAEMON == "nowhere":
        return [str(HERE / "nowhere")]
    if DAEMON == "real":
        return [sys.executable, "-m", "duet_rpc", command, *flags]
    if DAEMON == "methods":
        return [sys.executable, str(HERE / "daemon_with_methods.py")]
    return [sys.executable, str(HERE / "fake_daemon.py"), DAEMON, *flags]


if __name__ == "__main__":
    program.daemon_command = daemon_command
    if "TIMEOUT" in os.environ:
        from duet_rpc.terminal import doctor_checks, doctor_emacs

        doctor_checks.DAEMON_TIMEOUT = float(os.environ["TIMEOUT"])
        doctor_emacs.EMACS_TIMEOUT = float(os.environ["TIMEOUT"])
    del sys.argv[1]
    cli.main()
