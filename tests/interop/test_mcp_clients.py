"""MCP clients that others wrote, and the official conformance suite, against the built .pyz."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.conformance.suite import EXCUSES, SUITE, VERSIONS, Check, judge, node, run_suite
from tests.interop.test_clients import CLIENTS, check_run, need
from tests.support import PYZ, TOP, daemon

TOOLS = CLIENTS / "tools.py"
INSPECTOR = CLIENTS / "node_modules" / ".bin" / "mcp-inspector"
SDK_PYTHON = TOP / "build" / "mcp" / "bin" / "python"
SERVER = (sys.executable, str(PYZ), "mcp", "--methods", str(TOOLS))


def need_file(path: Path, how: str) -> str:
    """Find what `make test` sets up; without it skip, but never where all must run."""
    if not path.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{path} not found: {how}")
    return str(path)


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_python_sdk(mode: str) -> None:
    python = need_file(SDK_PYTHON, "`make test` sets it up where there is Python 3.10 or later")
    command = (python, "mcp_client.py", mode, sys.executable, str(PYZ), str(TOOLS))
    assert "all calls answered" in check_run(*command)


def test_the_typescript_sdk() -> None:
    command = (need("node"), "mcp_sdk.mjs", sys.executable, str(PYZ), str(TOOLS))
    assert "all calls answered" in check_run(*command)


def test_the_configurations_in_the_manual() -> None:
    page = (TOP / "docs" / "ai-clients.md").read_text()
    blocks = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        ((_, servers),) = json.loads(block).items()
        words = [servers["duet"]["command"], *servers["duet"]["args"]]
        assert words[1].endswith("duet-rpc.pyz")
        command = [sys.executable, PYZ, *words[2:], "--methods", TOOLS]
        with daemon(command, framing="lines") as client:
            client.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            assert client.receive()["result"] == {}


def inspect(*words: str, home: Path) -> dict[str, object]:
    """Run the Inspector's command line; return what it prints."""
    need_file(INSPECTOR, "npm install in tests/interop/clients")
    command = [node(), str(INSPECTOR), "--cli", "--format", "json", *words, "--", *SERVER]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOME": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, object] = json.loads(done.stdout)["result"]
    return found


@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
def test_the_inspector_calls_a_method(era: str, tmp_path: Path) -> None:
    words = ("--method", "tools/call", "--tool-name", "text.stats", "--tool-arg", "text=to be")
    result = inspect("--protocol-era", era, *words, home=tmp_path)
    assert result["structuredContent"] == {"words": 2, "longest": "to"}
    assert ("_meta" in result) == (era != "legacy")


def test_the_inspector_finds_no_fault_with_the_schemas(tmp_path: Path) -> None:
    tools = inspect("--method", "tools/list", "--strict", home=tmp_path)["tools"]
    assert isinstance(tools, list)
    assert "text.stats" in [tool["name"] for tool in tools]


@pytest.mark.parametrize("version", VERSIONS)
def test_conformance(version: str) -> None:
    need_file(SUITE, "npm install in tests/interop/clients")
    assert judge({version: run_suite(version)}) == []


def test_conformance_fails_where_it_should() -> None:
    excused = next(iter(EXCUSES))
    good = [Check("s", each, "SUCCESS", "") for each in ("tools-list", "tools-call-simple-text")]
    good += [Check("s", each, "SUCCESS", "") for each in ("ping", "server-initialize")]
    assert judge({"2025-11-25": [*good, Check("s", excused, "FAILURE", "no")]}) == []
    for bad in (
        [*good, Check("s", "x", "FAILURE", "no")],
        [*good, Check("s", "x", "WARNING", "no")],
        [*good, Check("s", excused, "SUCCESS", "")],
        good[1:],
    ):
        assert len(judge({"2025-11-25": bad})) == 1
    assert len(judge({version: [] for version in VERSIONS})) > len(EXCUSES)
