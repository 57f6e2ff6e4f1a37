"""Files of methods that are workers, and `duet-rpc rpc` in the home folder of their user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import GatewayClient, ended
from tests.method_files import env_for
from tests.process.test_environments import with_tool
from tests.support import SOURCE

BLOCK = "# /// script\n# ///\n"
HEAD = "import os, time\nfrom duet_rpc import Context, method\n"
PID = "@method\ndef {}_pid() -> int: return os.getpid()\n"
SLEEP = (
    "@method\ndef {}_sleep(seconds: float) -> str:\n    time.sleep(seconds)\n    return 'slept'\n"
)


def worker_file(name: str, *more: str) -> str:
    """Return the text of a file that is a worker, with two methods and what else is wanted."""
    return BLOCK + plain_file(name, *more)


def plain_file(name: str, *more: str) -> str:
    return (
        HEAD + PID.format(name) + SLEEP.format(name) + "".join(f"@method\n{each}" for each in more)
    )


@contextmanager
def rpc(tmp_path: Path, *flags: str, config: str = "", **environ: str) -> Iterator[GatewayClient]:
    """Run `duet-rpc rpc` in the home folder of a user, and leave nothing of it behind."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    if config:
        (home / ".config/duet-rpc").mkdir(parents=True, exist_ok=True)
        (home / ".config/duet-rpc/config.toml").write_text(config)
    log = {"DUET_RPC_LOG": str(tmp_path / "log")}
    client = GatewayClient([*SOURCE, "rpc", *flags], {**env_for(tmp_path), **log, **environ})
    with ended(client):
        yield client


def names(client: GatewayClient) -> list[str]:
    """List the user's methods."""
    listed = [each["name"] for each in client.call("listMethods")]
    return [each for each in listed[6:] if "/" not in each and each != "reloadMethods"]


def status(client: GatewayClient) -> dict[str, Any]:
    return {each["name"]: each for each in client.call("gateway/status")["backends"]}


@pytest.fixture
def made_with_uv(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables for a user who has uv; all tests share what it downloads."""
    shared = tmp_path_factory.getbasetemp().parent / "uv-cache"
    env = with_tool("uv", tmp_path, {"PATH": os.environ["PATH"]})
    return {"PATH": env["PATH"], "UV_CACHE_DIR": str(shared)}
