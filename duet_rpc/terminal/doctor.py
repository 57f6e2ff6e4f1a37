"""`duet-rpc doctor`: check what goes wrong in practice and say how to fix it.

`doctor_checks`, `doctor_methods`, `doctor_workers` and `doctor_emacs` have the checks. Each of
them is a function that returns or yields `Check`s and depends on no other, so that one problem
does not hide the next.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from duet_rpc.command_line import daemon_flags
from duet_rpc.log import escape
from duet_rpc.terminal.doctor_checks import (
    FAIL,
    OK,
    WARN,
    Check,
    check_config,
    check_daemon,
    check_home,
    check_log,
    check_program,
    check_python,
)
from duet_rpc.terminal.doctor_emacs import check_elisp, check_emacs
from duet_rpc.terminal.doctor_methods import (
    check_methods,
    check_methods_folder,
    check_methods_python,
)
from duet_rpc.terminal.doctor_workers import check_workers
from duet_rpc.terminal.output import paint, wants_color
from duet_rpc.terminal.pretty import write_json
from duet_rpc.terminal.request import exit_on_signals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from duet_rpc.command_line import Arguments

MARKS = {OK: ("✓", "ok", "good"), WARN: ("!", "!", "warning"), FAIL: ("✗", "X", "bad")}
"""For each status its mark, its mark in ASCII, and its colour."""


def doctor(arguments: Arguments) -> int:
    """Run all checks and print a report; return 1 where one has failed."""
    options = arguments.options
    # Not the level of the configuration, which may be what is broken.
    flags = daemon_flags(options, options.log_level or "warn")
    exit_on_signals()
    checks = []
    color = wants_color(sys.stdout, options.no_color)
    for check in run_checks(flags, options.methods):
        checks.append(check)
        if not options.json:
            print(report_line(check, color), flush=True)
    failures = sum(check.status == FAIL for check in checks)
    warnings = sum(check.status == WARN for check in checks)
    if options.json:
        write_json({"ok": not failures, "checks": [each._asdict() for each in checks]}, color)
    elif failures or warnings:
        print(f"\n{count(failures, 'failure')}, {count(warnings, 'warning')}")
    else:
        print("\nno problems found")
    return 1 if failures else 0


def run_checks(flags: Sequence[str], sources: Sequence[str]) -> Iterator[Check]:
    """Yield the results of all checks, the quick ones first."""
    yield check_python()
    yield from check_program()
    yield check_home()
    yield from check_config()
    yield check_log()
    yield check_methods_folder()
    yield from check_methods_python()
    workers = [*check_workers(sources)]
    yield from workers
    reported = tuple(each.detail for each in workers if each.status == FAIL)
    for check in check_daemon(flags, check_methods):
        if not check.detail.startswith(reported):
            yield check
    yield from check_emacs()
    yield from check_elisp()


def report_line(check: Check, color: bool) -> str:
    """Return a check as text for a person, with an ASCII mark where stdout needs that."""
    mark, ascii_mark, style = MARKS[check.status]
    text = f"{check.name:<12} {escape(check.detail, 1000)}"
    if check.fix:
        text += f"\n  {'fix:':<12} {escape(check.fix, 1000)}"
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        f"{mark}{text}".encode(encoding)
    except UnicodeEncodeError:
        mark = ascii_mark
    return f"{paint(mark, style, color)} {text}"


def count(number: int, what: str) -> str:
    """Return a number with its noun: `1 warning`, `2 warnings`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
