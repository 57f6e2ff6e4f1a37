"""`call`, `console` and `doctor` of the .pyz, on every Python."""

from __future__ import annotations

import json
import os
from pathlib import Path

from duet_rpc import __version__
from tests.machine import wait_until_idle
from tests.support import PYZ
from tests.terminal import Person, environment, invoke

VERSION = json.dumps({"version": __version__}, indent=2) + "\n"


def home(folder: Path) -> dict[str, str]:
    (folder / "home").mkdir()
    (folder / "tmp").mkdir()  # so that nothing left by another start is found
    return environment(
        folder / "home", PYTHONPATH="", PROMPT_TOOLKIT_NO_CPR="1", TMPDIR=str(folder / "tmp")
    )


def test_call(python: str, tmp_path: Path) -> None:
    env = home(tmp_path)
    assert invoke(["call", "version"], env, None, [python, PYZ]) == (0, VERSION, "")
    code, out, err = invoke(["call", "setLogLevel", "level=loud"], env, None, [python, PYZ])
    assert (code, out) == (1, "")
    assert "signature: setLogLevel(level: string) -> object" in err
    assert invoke(["call", "version", "-"], env, b"[" * 100_000, [python, PYZ])[0] == 2


def test_console(python: str, tmp_path: Path) -> None:
    env = home(tmp_path)
    assert invoke(["console"], env, b"version\n", [python, PYZ]) == (0, VERSION, "")
    with Person(["console"], env, [python, PYZ]) as person:
        person.see("duet>")
        person.type("version\r")
        person.see(f'"{__version__}"')
        person.see("duet>")
        # Python's readline misses a signal that comes with a key.
        wait_until_idle(person.process.pid)
        person.type("\x03")
        person.see("duet>")
        person.type("quit\r")
        assert person.leave() == 0


def test_doctor(python: str, tmp_path: Path) -> None:
    env = {**home(tmp_path), "PATH": os.defpath}
    _, out, err = invoke(["doctor", "--json"], env, None, [python, PYZ])
    assert err == ""
    checks = {check["name"]: check["status"] for check in json.loads(out)["checks"]}
    for name in ("Python", "program", "cache", "home", "config", "log", "daemon", "stdout"):
        assert checks[name] == "ok", name
