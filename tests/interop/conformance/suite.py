"""The suite against `duet-rpc mcp`: how it is run, and which of its checks can't apply."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.interop.conformance.shim import Shim
from tests.support import PYZ, TOP

CLIENTS = TOP / "tests" / "interop" / "clients"
SUITE = CLIENTS / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
TOOLS = TOP / "tests" / "interop" / "conformance" / "tools.py"
VERSIONS = ("2025-11-25", "2026-07-28")

# What a server must do that has what duet-rpc has not: its checks can't pass here.
CANT_APPLY = {
    "methods return data, which becomes text and structured content": (
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
    ),
    "a method asks for one thing at a time, and never for sampling or roots": (
        "tools-call-sampling",
        "elicitation-sep1034-general",
        "elicitation-sep1330-general",
        "sep-2322-sampling-incomplete",
        "sep-2322-list-roots-incomplete",
        "sep-2322-multiple-inputs-incomplete",
        "sep-2322-non-tool-incomplete",
        "sep-2322-respect-client-capabilities",
    ),
    "questions are numbered: the suite wants other keys": (
        "sep-2322-elicitation-incomplete",
        "sep-2322-ignore-unexpected-params",
    ),
    "a client without elicitation gets a tool error, which the model sees": (
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
    ),
    "a schema is made from a signature, not written by hand": (
        "json-schema-2020-12-tool-found",
        "sep-2243-server-no-xmcp-tool",
        "sep-2243-server-decode-base64",
        "sep-2243-server-validate-param-match",
        "sep-2243-server-reject-invalid-param-chars",
        "sep-2243-server-reject-param-mismatch",
    ),
    "the messages of a prompt are texts": (
        "prompts-get-embedded-resource",
        "prompts-get-with-image",
    ),
    "a resource is a function, and nobody knows when its result changes": (
        "resources-subscribe",
        "resources-unsubscribe",
    ),
    "duet-rpc opens no port": ("localhost-host-rebinding-rejected",),
}
EXCUSES = {check: reason for reason, checks in CANT_APPLY.items() for check in checks}

# Without these in it a run has not run.
MUST_RUN = {
    "2025-11-25": {"server-initialize", "ping", "tools-list", "tools-call-simple-text"},
    "2026-07-28": {"sep-2575-server-implements-discover", "tools-list", "tools-call-simple-text"},
}


class Check(NamedTuple):
    """One check of the suite."""

    scenario: str
    id: str
    status: str
    words: str

    @property
    def passed(self) -> bool:
        """True where it was made and holds."""
        return self.status == "SUCCESS"

    @property
    def failed(self) -> bool:
        """True where it does not hold, be it a MUST or a SHOULD."""
        return self.status in ("FAILURE", "WARNING")


def node() -> str:
    """Find a Node.js that is new enough for the suite: the one that npm has installed."""
    for found in (CLIENTS / "node_modules").glob("node-*/bin/node"):
        return str(found)
    return "node"


def run_suite(version: str) -> list[Check]:
    """Run all scenarios of a version."""
    command = [sys.executable, str(PYZ), "mcp", "--log-level", "error", "--methods", str(TOOLS)]
    shim = Shim(command)
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [
                    *(node(), str(SUITE), "server", "--url", shim.url, "--suite", "all"),
                    *("--spec-version", version, "--output-dir", folder),
                ],
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            checks = [each for path in Path(folder).iterdir() for each in _read(path)]
    finally:
        shim.close()
    assert checks, done.stdout[-2000:] + done.stderr[-2000:]
    return checks


def _read(folder: Path) -> list[Check]:
    # A folder's name is the scenario's between "server-" and the time.
    scenario = folder.name[len("server-") : -len("-2026-01-01T00-00-00-000Z")]
    return [
        Check(scenario, each["id"], each["status"], each.get("errorMessage") or "")
        for each in json.loads((folder / "checks.json").read_text())
    ]


def judge(outcomes: dict[str, list[Check]]) -> list[str]:
    """Say what is wrong with the outcome, or with the table."""
    wrong = []
    for version, checks in outcomes.items():
        for check in checks:
            where = f"{version} {check.scenario}: {check.id}"
            if check.failed and check.id not in EXCUSES:
                wrong.append(f"{where}: {check.words}")
            elif check.passed and check.id in EXCUSES:
                wrong.append(f"{where} passes; it is listed with: {EXCUSES[check.id]}")
        missing = MUST_RUN[version] - {check.id for check in checks if check.passed}
        wrong += [f"{version} {each}: not passed" for each in sorted(missing)]
    if len(outcomes) == len(VERSIONS):
        seen = {check.id for checks in outcomes.values() for check in checks}
        wrong += [
            f"{each}: listed, but the suite has no such check"
            for each in EXCUSES
            if each not in seen
        ]
    return wrong
