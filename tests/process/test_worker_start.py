"""The start of a worker whose environment exists: with one Python, which keeps it in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from duet_rpc.environments.prune import is_in_use
from tests.method_files import write
from tests.support import TOP, wait_for_file
from tests.terminal import environment, invoke, is_gone
from tests.workers import BLOCK, made_with_uv, plain_file, rpc, status

__all__ = ["made_with_uv"]

PACKED = BLOCK.replace("script\n", 'script\n# dependencies = ["tabulate"]\n') + plain_file("b")

LISTS_STARTS = """import os, sys
with open(os.environ["STARTS"], "a") as file:
    file.write(sys.executable + "\\n")
"""


@pytest.fixture
def python(tmp_path: Path, folder: Path, made_with_uv: dict[str, str]) -> str:
    """Make the environment of `b.py`; return its Python."""
    write(folder, PACKED, "b.py")
    with rpc(tmp_path, **made_with_uv) as client:
        client.call("b_pid")
        return str(status(client)["b.py"]["python"])


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let every Python write its path to a file when it starts; return that file."""
    write(tmp_path / "site", LISTS_STARTS, "sitecustomize.py")
    monkeypatch.setenv("STARTS", str(tmp_path / "starts"))
    return tmp_path / "starts"


def test_an_existing_environment_starts_one_python(
    tmp_path: Path, python: str, starts: Path
) -> None:
    with rpc(tmp_path, PYTHONPATH=f"{TOP}:{tmp_path}/site") as client:
        client.call("version")
        before = starts.read_text().splitlines()
        client.call("b_pid")
        assert starts.read_text().splitlines() == [*before, python]


def test_call_starts_the_python_of_an_existing_environment(
    tmp_path: Path, python: str, starts: Path
) -> None:
    env = {
        **environment(tmp_path / "home"),
        "STARTS": str(starts),
        "PYTHONPATH": f"{TOP}:{tmp_path}/site",
    }
    code, out, err = invoke(["call", "b_pid"], env)
    assert (code, int(out) > 0, err) == (0, True, "")
    assert starts.read_text().splitlines()[1:] == [python]


def test_an_environment_is_in_use_while_its_worker_runs(
    tmp_path: Path, folder: Path, python: str
) -> None:
    made = str(Path(python).parent.parent.parent)
    with rpc(tmp_path) as client:
        pid = client.call("b_pid")
        assert is_in_use(made)
        write(folder, plain_file("b"), "b.py")  # it is a worker no more
        client.call("b_pid")
        assert is_gone(pid)
        assert not is_in_use(made), "the router has no part in it"


TELLS_OF_ITS_IMPORT = """import os
open(os.environ["IMPORTED"] + str(os.getpid()), "x").close()
raise ImportError
"""


def test_no_call_waits_for_the_router_to_import_loguru(tmp_path: Path, folder: Path) -> None:
    write(folder, BLOCK + plain_file("b"), "b.py")
    write(tmp_path / "site", TELLS_OF_ITS_IMPORT, "loguru.py")
    environ = {"PYTHONPATH": f"{tmp_path}/site:{TOP}", "IMPORTED": f"{tmp_path}/imported-"}
    with rpc(tmp_path, **environ) as client:
        imported = tmp_path / f"imported-{client.process.pid}"
        client.call("version")
        client.call("b_sleep", {"seconds": 0.3})
        assert not imported.exists()
        wait_for_file(imported)
