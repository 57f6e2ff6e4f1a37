"""What the tests of the log share: the form of a line, and when loguru writes it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from tests.support import TOP

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (DEBUG|INFO |WARN |ERROR) \S.*"
)
EARLY_AND_LATE = pytest.mark.parametrize("late", [False, True], ids=["direct", "loguru"])


def script_run(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script that uses the log in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=TOP, timeout=60, check=True, **{"capture_output": True, "text": True, **options},
    )  # fmt: skip
