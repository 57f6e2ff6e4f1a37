"""Install packages into a new environment, with uv where it is on PATH, else with venv and pip.

A person waits for this, and it fails for many reasons that are not ours: a name that does not
exist, versions that contradict one another, no network. So the installer's last line is passed
on while it runs, and the end of its output is in the error, with a command to try by hand.
"""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import subprocess
from time import monotonic
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from duet_rpc.environments.pythons import allows, choose, own_allowed, probe
from duet_rpc.environments.requirements import NOT_MADE, EnvironmentFailure
from duet_rpc.environments.store import python_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from duet_rpc.environments.requirements import Requirements

REPORT_EVERY = 0.3  # seconds, at least
LINE_MAX = 200  # characters of a line that is reported
END_LINES = 15  # lines of output in an error
OUTPUT_MAX = 64 * 1024  # characters that are kept to find these

TRIAL = "/tmp/duet-rpc-try"  # noqa: S108 - where a person may try a command
OWN = "tomli>=2.0.1,<3"  # what duet-rpc needs in a Python before 3.11, to read TOML

OFFLINE = (
    "Failed to establish a new connection", "NewConnectionError", "name resolution",
    "Name or service not known", "nodename nor servname", "Network is unreachable",
    "No route to host", "Connection refused", "ConnectTimeoutError", "timed out", "dns error",
    "tcp connect error", "network was disabled", "network is disabled", "connectivity is disabled",
)  # fmt: skip
"""What installers write where they cannot reach the index."""


class InstallerFailed(Exception):
    """An installer has failed; `output` is the end of what it wrote."""

    def __init__(self, how: str, output: str) -> None:
        super().__init__(how)
        self.output = output


def install(
    folder: str,
    lock: int,
    requirements: Requirements,
    python: str | None,
    report: Callable[[str], None],
) -> dict[str, object]:
    """Make `venv` in a folder, and return what it holds; raise EnvironmentFailure."""
    packages = list(requirements.dependencies)
    check(packages)
    what = f"an environment with {', '.join(packages)}" if packages else "an environment"
    has_uv = shutil.which("uv") is not None
    requires = requirements.requires_python
    if python is not None:
        require(python, requires)
    elif has_uv and not own_allowed(requires):
        python = f"{requires},>=3.9"  # uv finds one, or downloads it
    else:
        python = choose(requires)
    report(f"making {what}")
    tool = Uv(python) if has_uv else Pip(python)
    venv = os.path.join(folder, "venv")
    try:
        run(tool.create(venv), folder, lock, report)
        made = probe(python_of(folder))
        if made is None:
            raise EnvironmentFailure(
                f"{what}{NOT_MADE}{tool.name} has made a Python that does not run",
                f"Try it by hand: {shlex.join(tool.create(TRIAL))} && {TRIAL}/bin/python --version",
            )
        wanted = [*packages, OWN] if made.version < (3, 11) else packages
        if wanted:
            run(tool.add(venv, wanted), folder, lock, report)
    except InstallerFailed as failure:
        by_hand = [shlex.join(tool.create(TRIAL))]
        if packages:
            by_hand.append(shlex.join(tool.add(TRIAL, packages)))
        raise EnvironmentFailure(
            explain(what, tool, failure), f"Try it by hand: {' && '.join(by_hand)}"
        ) from None
    return {
        "dependencies": packages,
        "requires-python": requires,
        "python": ".".join(map(str, made.version)),
        "base": made.path,
        "made with": tool.name,
    }


def check(packages: Sequence[str]) -> None:
    """Raise EnvironmentFailure for a dependency that no installer would understand."""
    for each in packages:
        try:
            Requirement(each)
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            raise EnvironmentFailure(
                f"the dependency {each!r} cannot be understood: {reason}",
                "Write it as in 'pandas', 'pandas>=2,<3' or 'name @ https://…'",
            ) from None


def require(python: str, requires: str | None) -> None:
    """Raise EnvironmentFailure where the Python that was named is not allowed."""
    found = probe(python)
    if found is None:
        raise EnvironmentFailure(f"{python} is not a Python that can be run", "Name another one")
    if not allows(requires, found.version):
        why = f"requires-python = {requires!r}" if requires else "duet-rpc needs 3.9 or later and"
        raise EnvironmentFailure(f"{why} does not allow {found}", "Name another Python")


class Uv:
    """The commands of uv; `python` is a path or a range of versions."""

    name = "uv"

    def __init__(self, python: str) -> None:
        self._python = python

    def create(self, venv: str) -> list[str]:
        """Return the command that makes a virtual environment."""
        return ["uv", "venv", "--quiet", "--no-project", "--clear", "--python", self._python, venv]

    def add(self, venv: str, packages: Sequence[str]) -> list[str]:
        """Return the command that installs packages."""
        return ["uv", "pip", "install", "--python", f"{venv}/bin/python", *packages]


class Pip:
    """The commands of venv and pip. Isolated, so that PYTHONPATH does not count as installed.

    To put pip itself into the environment takes 5 s, so that of the Python it is made from is
    used where it can install elsewhere.
    """

    name = "pip"

    def __init__(self, python: str) -> None:
        self._python = python
        self._has_pip = can_install_elsewhere(python)

    def create(self, venv: str) -> list[str]:
        """Return the command that makes a virtual environment."""
        without = ["--without-pip"] if self._has_pip else []
        return [self._python, "-I", "-m", "venv", "--clear", *without, venv]

    def add(self, venv: str, packages: Sequence[str]) -> list[str]:
        """Return the command that installs packages."""
        options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        python = f"{venv}/bin/python"
        pip = [self._python, "-I", "-m", "pip", "--python", python]
        if not self._has_pip:
            pip = [python, "-I", "-m", "pip"]
        return [*pip, "install", *options, *packages]


def can_install_elsewhere(python: str) -> bool:
    """Return whether a Python has a pip that knows the option --python."""
    show = "import pip; print(*pip.__version__.split('.')[:2])"
    command = [python, "-I", "-c", show]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return not done.returncode and tuple(map(int, done.stdout.split())) >= (22, 3)
    except ValueError:
        return False


def run(command: list[str], folder: str, lock: int, report: Callable[[str], None]) -> None:
    """Run an installer that inherits the lock; raise InstallerFailed unless it succeeds."""
    environment = {**os.environ, "PIP_USER": "0", "NO_COLOR": "1"}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,  # in a project, uv would read the settings of that
            env=environment,
            pass_fds=[lock],
        )
    except OSError as error:
        raise InstallerFailed(f"could not be started: {error.strerror}", "") from None
    try:
        output = follow(process, report)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise InstallerFailed(f"failed with exit code {process.returncode}", output)


def follow(process: subprocess.Popen[bytes], report: Callable[[str], None]) -> str:
    """Report the last line of a process now and then until it ends; return its output's end."""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    output, reported, last = "", "", 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(REPORT_EVERY):
                chunk = os.read(process.stdout.fileno(), 8192)
                if not chunk:
                    break
                output = (output + chunk.decode("utf-8", "replace"))[-OUTPUT_MAX:]
            lines = output.replace("\r", "\n").rpartition("\n")[0].split("\n")
            line = next((each.strip() for each in reversed(lines) if each.strip()), "")
            if line != reported and monotonic() - last >= REPORT_EVERY:
                reported, last = line, monotonic()
                report(line[:LINE_MAX])
    process.wait()
    return output


def explain(what: str, tool: Uv | Pip, failure: InstallerFailed) -> str:
    """Return why an environment could not be made, and below that what the installer wrote."""
    lines = [line.rstrip() for line in failure.output.splitlines() if line.strip()]
    if "No space left on device" in failure.output:
        why = "the disk is full"
    elif any(sign in failure.output for sign in OFFLINE):
        why = f"{tool.name} could not connect to the network"
    else:
        why = f"{tool.name} {failure}"
    head = f"{what}{NOT_MADE}{why}"
    end = [f"  {line}" for line in lines[-END_LINES:]]
    output = ["The end of its output:", *end] if end else ["It wrote nothing."]
    return "\n".join([head, *output])
