"""`duet-rpc console`, through a pipe and with each line editor there is."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.terminal import WITH_DAEMON, environment, invoke

EDITORS = ["prompt_toolkit", "readline", "plain"]


def with_editor(name: str, folder: Path) -> dict[str, str]:
    """Return an environment where this is the best line editor installed."""
    for part in ("home", "hidden"):
        (folder / part).mkdir()
    for better in EDITORS[: EDITORS.index(name)]:
        (folder / "hidden" / f"{better}.py").write_text("raise ImportError\n")
    env = environment(folder / "home")
    # prompt_toolkit asks the terminal where the cursor is; nobody answers here.
    path = f"{folder / 'hidden'}{os.pathsep}{env['PYTHONPATH']}"
    return {**env, "PYTHONPATH": path, "PROMPT_TOOLKIT_NO_CPR": "1", "EDITOR_NAME": name}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return with_editor("readline", tmp_path)


@pytest.fixture(params=EDITORS)
def editor(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    name: str = request.param
    if name != "plain" and find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return with_editor(name, tmp_path)


def history(env: dict[str, str]) -> Path:
    return Path(env["HOME"]) / ".local" / "state" / "duet-rpc" / "history"


def script(
    text: str, env: dict[str, str], daemon: str | None = None, **more: str
) -> tuple[int, str, str]:
    """Run lines from a pipe in the console."""
    env = {**env, **more}
    if daemon is None:
        return invoke(["console"], env, text.encode())
    return invoke([daemon, "console"], env, text.encode(), WITH_DAEMON)


def values(text: str) -> list[object]:
    """Parse JSON texts that follow one another."""
    found, at = [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = json.JSONDecoder().raw_decode(text, at)
        found.append(value)
    return found
