"""Start as a worker does: get a Python for what is asked, then become a program under it.

    python tests/with_environment.py '{"dependencies": ["humanize"]}' rpc
    python tests/with_environment.py '{"dependencies": ["humanize"]}' -c 'import humanize'

What is reported and what fails is on stderr.
"""

from __future__ import annotations

import json
import os
import sys

from duet_rpc.environments.ensure import ensure
from duet_rpc.environments.requirements import EnvironmentFailure, Requirements
from duet_rpc.environments.start import command

asked = json.loads(sys.argv[1])
requirements = Requirements(asked.get("requires"), tuple(asked.get("dependencies", ())))
try:
    python = ensure(
        requirements,
        asked.get("python"),
        lambda line: print(f"report: {line}", file=sys.stderr, flush=True),
        asked.get("user", ""),
    )
    words = sys.argv[2:]
    start = [python, *words] if words[0] == "-c" else command(python, words)
except EnvironmentFailure as failure:
    sys.exit(f"failed: {failure}")
os.execv(start[0], start)  # noqa: S606
