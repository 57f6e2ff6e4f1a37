"""The tests pass on the machine of somebody who has methods and settings of their own."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def test_no_test_sees_the_home_of_whoever_runs_it() -> None:
    assert Path.home() != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert not (Path.home() / ".config" / "duet-rpc").exists()
    assert [name for name in os.environ if name.startswith(("XDG_", "DUET_RPC_"))] == []
