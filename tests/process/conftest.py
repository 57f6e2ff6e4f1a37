"""The folder of the user whose daemon is tested."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the user's methods belong; nobody has made it yet."""
    return tmp_path / "home/.config/duet-rpc/methods"
