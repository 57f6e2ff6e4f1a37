"""`duet-rpc call` as a person has it: in a home folder, perhaps with a daemon that misbehaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.terminal import WITH_DAEMON, environment, invoke

VERSION = json.dumps({"version": __version__}, indent=2) + "\n"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return environment(tmp_path / "home")


def fake(
    behaviour: str, words: list[str], env: dict[str, str], stdin: bytes = b"", **more: str
) -> tuple[int, str, str]:
    return invoke([behaviour, *words], {**env, **more}, stdin, WITH_DAEMON)
