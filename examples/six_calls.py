"""Start duet-rpc, call its six built-in methods, and print the messages in both directions.

    python examples/six_calls.py dist/duet-rpc.pyz

It is also a minimal client: a length, an empty line, some JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

CALLS = [
    ("initialize", None),
    ("listMethods", None),
    ("describeMethods", None),
    ("version", None),
    ("setLogLevel", {"level": "warn"}),
    ("shutdown", None),
]


def send(pipe: IO[bytes], message: dict[str, object]) -> None:
    """Write one frame."""
    body = json.dumps(message).encode()
    pipe.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    pipe.flush()


def receive(pipe: IO[bytes]) -> object:
    """Read one frame."""
    header = pipe.readline()
    pipe.readline()
    return json.loads(pipe.read(int(header.split(b":")[1])))


def main(program: str) -> int:
    """Make the calls and return the daemon's exit code."""
    command = [sys.executable, program, "rpc"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        for number, (method, params) in enumerate(CALLS, 1):
            request: dict[str, object] = {"jsonrpc": "2.0", "id": number, "method": method}
            if params:
                request["params"] = params
            print(f"→ {json.dumps(request)}")
            send(daemon.stdin, request)
            print(f"← {json.dumps(receive(daemon.stdout))}\n", flush=True)
    path = Path(program).resolve().parent
    print(f"The daemon exited with code {daemon.returncode}. Next steps:\n")
    print("in Emacs (once, or in your init file):")
    print(f'  (add-to-list \'load-path "{path}")')
    print("  (require 'duet-rpc)")
    print("  M-x duet-rpc-version")
    print("in a terminal:")
    print(f"  {program} --help")
    return daemon.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
