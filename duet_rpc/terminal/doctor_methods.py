"""The checks of the doctor that are about the user's methods and the Python that runs them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

from duet_rpc import program
from duet_rpc.config import files as config
from duet_rpc.environments.methods_python import KEY, find
from duet_rpc.environments.requirements import NOT_MADE
from duet_rpc.jsonrpc.errors import METHOD_NOT_FOUND, RpcError
from duet_rpc.methods.sources import RELOAD
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.doctor_checks import (
    FAIL,
    OK,
    PYTHON_MIN,
    PYTHON_TIMEOUT,
    Check,
    dotted,
    numbers,
    output_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LOADING_TIMEOUT = 60.0
"""Seconds for loading the user's methods, which may import large packages."""

VERSION_CODE = "import sys; print('%d.%d.%d' % sys.version_info[:3])"

PIP_CODE = """
import importlib.util, os, sys, sysconfig
mark = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
is_managed = sys.prefix == sys.base_prefix and os.path.exists(mark)
print("managed" if is_managed else "pip" if importlib.util.find_spec("pip") else "no pip")
"""
"""Prints whether a Python has pip, or its distribution forbids the use of it (PEP 668)."""

PACKAGES = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "GitPython",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
"""Well-known modules whose package has another name."""


def check_methods_python() -> Iterator[Check]:
    """Check the Python that the configuration names: that it runs, and is new enough."""
    try:
        settings = config.load_config()
    except config.ConfigError:
        return  # reported by another check
    if settings.python is None:
        return
    path = find(settings.python)
    fix = f"correct {KEY} in {settings.origins[KEY]}, or remove it; until then no method can run"
    if path is None:
        yield Check(KEY, FAIL, f"{settings.python} was not found on PATH", fix)
        return
    version = numbers(output_of([path, "-c", VERSION_CODE], PYTHON_TIMEOUT))
    if not version:
        why = "does not run as a Python" if os.path.exists(path) else "was not found"
        yield Check(KEY, FAIL, f"{path} {why}", fix)
    elif version < PYTHON_MIN:
        need = dotted(PYTHON_MIN)
        yield Check(KEY, FAIL, f"{path} is {dotted(version)}; {need} or later is needed", fix)
    else:
        yield Check(KEY, OK, f"{dotted(version)}, {path}")


def check_methods(client: Client) -> list[Check]:
    """Check the user's methods: count them, and name the files that cannot be loaded."""
    entries = client.call("listMethods", seconds=LOADING_TIMEOUT)
    listed = [each.get("name") for each in entries] if isinstance(entries, list) else []
    names, problems = load_methods(client) if listed else ([], [])
    if not names and not problems and RELOAD not in listed:
        return [Check("methods", OK, "no user methods")]
    failed = [check_problem(problem) for problem in problems]
    return [Check("methods", OK, f"{len(names)} loaded"), *failed]


def load_methods(client: Client) -> tuple[list[str], list[str]]:
    """Return the names of the user's methods, and what could not be loaded."""
    try:
        loaded = client.call(RELOAD, seconds=LOADING_TIMEOUT)
    except RpcError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return [], []
    if not isinstance(loaded, dict):
        raise DaemonError(f"{RELOAD} returned no object")
    return [str(each) for each in loaded["methods"]], [str(each) for each in loaded["problems"]]


def check_problem(problem: str) -> Check:
    """Say what to do about a file that could not be loaded."""
    what, _, _ = problem.partition(". Install it: ")
    missing = re.search(r" imports '(\w+)[\w.]*', which is not installed", what)
    if NOT_MADE in what:
        call = f"{program.program_name()} call METHOD"
        return Check(
            "methods",
            FAIL,
            what,
            f"`{call}` tries again, and shows the end of the installer's output",
        )
    if missing is None:
        return Check("methods", FAIL, problem, "fix that line and save the file")
    return Check("methods", FAIL, what, how_to_install(missing.group(1)))


def how_to_install(module: str) -> str:
    """Return the command that installs a module's package for the Python that runs methods."""
    name = config.load_config().python
    python = (name and find(name)) or sys.executable
    package = PACKAGES.get(module, module)
    pip = (output_of([python, "-c", PIP_CODE], PYTHON_TIMEOUT) or "").strip()
    if pip == "managed":  # pip would refuse
        venv = "~/.local/share/duet-rpc/venv"
        new = f"{venv}/bin/python"
        return (
            f"{shlex.quote(python)} -m venv {venv} && {new} -m pip install {package}, "
            f'then put python = "{new}" under [methods] into your configuration'
        )
    if pip == "no pip":
        return f"that Python has no pip: uv pip install --python {shlex.quote(python)} {package}"
    return shlex.join([python, "-m", "pip", "install", package])


def check_methods_folder() -> Check:
    """Name the folder of the user's methods."""
    folder = config.user_folder(os.environ)
    if folder is None:
        return Check("folder", OK, "none, without a home directory")
    folder = os.path.join(folder, "methods")
    if os.path.isdir(folder):
        return Check("folder", OK, folder)
    hint = f"`{program.program_name()} new NAME` makes it"
    return Check("folder", OK, f"{folder} does not exist; {hint}")
