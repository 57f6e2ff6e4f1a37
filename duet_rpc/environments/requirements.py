"""What a file or a worker asks for, and the error for what cannot be had."""

from __future__ import annotations

from typing import NamedTuple, Optional


class Requirements(NamedTuple):
    """A range of Python versions and the packages, as they were written."""

    requires_python: Optional[str] = None  # noqa: UP045 - evaluated on Python 3.9
    dependencies: tuple[str, ...] = ()


NOT_MADE = " could not be made: "
"""What stands between the environment that is missing, and why it is."""


class EnvironmentFailure(Exception):
    """There is no Python for what was asked; the text is for a person.

    `what` happened, perhaps in several lines, and the sentence that tells how to `fix` it.
    """

    def __init__(self, what: str, fix: str) -> None:
        separator = "\n" if "\n" in what else ". "
        super().__init__(f"{what}{separator}{fix}")
        self.what = what
        self.fix = fix
