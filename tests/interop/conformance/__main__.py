"""Run the suite's scenarios for a server and hold the outcome against a table.

    python -m tests.interop.conformance

Every check of every scenario counts: it passes, or the table says why it can't. A check
that the table excuses and that passes all the same is a fault too, of the table.
"""

from __future__ import annotations

import sys

from tests.interop.conformance.suite import EXCUSES, VERSIONS, judge, run_suite


def main() -> int:
    """Print what was found; return the exit code."""
    outcomes = {version: run_suite(version) for version in VERSIONS}
    for version, outcome in outcomes.items():
        passed = sum(check.passed for check in outcome)
        excused = sum(check.id in EXCUSES and not check.passed for check in outcome)
        print(f"{version}: {passed} checks passed, {excused} can't apply")
    for check_id, reason in sorted(EXCUSES.items(), key=lambda each: (each[1], each[0])):
        print(f"  {check_id:58}{reason}")
    wrong = judge(outcomes)
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
