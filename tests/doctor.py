"""`duet-rpc doctor` where nothing is wrong, until a test makes it so."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from duet_rpc import __version__
from tests.support import PYZ, SOURCE
from tests.terminal import WITH_DAEMON, environment, invoke

GOOD_EMACS = 'echo "emacs 29.1"; echo "jsonrpc 1.0.17"'


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment without problems, with a fake Emacs."""
    for name in ("home", "bin", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    for tool in ("sh", "sleep"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    env = environment(tmp_path / "home", PATH=str(tmp_path / "bin"), TMPDIR=str(tmp_path / "tmp"))
    put_emacs(env, GOOD_EMACS)
    return env


@pytest.fixture
def pyz(tmp_path: Path, env: dict[str, str]) -> list[str | Path]:
    """Put both files of a release into a folder."""
    env["PYTHONPATH"] = ""
    folder = tmp_path / "release"
    folder.mkdir()
    shutil.copy(PYZ, folder)
    (folder / "duet-rpc.el").write_text(f";;; duet-rpc.el --- x\n\n;; Version: {__version__}\n")
    return [sys.executable, folder / "duet-rpc.pyz"]


def put_emacs(env: dict[str, str], script: str) -> None:
    path = Path(env["PATH"]) / "emacs"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def examine(
    env: dict[str, str], command: list[str | Path] | None = None, cwd: Path | None = None
) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the checks by name."""
    code, out, err = invoke(["doctor", "--json"], env, None, command or SOURCE, cwd)
    assert err == ""
    report = json.loads(out)
    for check in report["checks"]:
        assert list(check) == ["name", "status", "detail", "fix"]
        assert (check["fix"] is None) == (check["status"] == "ok"), "a fix for each failure"
    assert report["ok"] == (code == 0)
    assert report["ok"] == all(check["status"] != "fail" for check in report["checks"])
    return code, {check["name"]: check for check in report["checks"]}


def trouble(checks: dict[str, Any]) -> dict[str, str]:
    """Return what is not ok."""
    return {name: each["status"] for name, each in checks.items() if each["status"] != "ok"}


def with_fake(daemon: str) -> list[str | Path]:
    return [*WITH_DAEMON, daemon]
