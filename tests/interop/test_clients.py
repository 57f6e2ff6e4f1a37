"""Clients that others wrote, against the built .pyz: Emacs's jsonrpc.el, vscode-jsonrpc."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

from tests.support import PYZ, RESTORE_SIGNALS, TOP, request, run

CLIENTS = TOP / "tests" / "interop" / "clients"
EMACSEN = os.environ.get("EMACSEN", "emacs").split()


def need(program: str) -> str:
    """Find a program; without it the test is skipped, but never where all must run."""
    found = shutil.which(program)
    if not found:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{program} not found")
    return str(found)


def check_run(*command: str) -> str:
    """Run a client, which exits with 0 only if all its checks hold."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=CLIENTS,
        timeout=120,
        check=False,
        restore_signals=RESTORE_SIGNALS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("emacs", EMACSEN)
def test_emacs_own_client_makes_all_calls(emacs: str) -> None:
    command = (need(emacs), "-Q", "--batch", "-l", "jsonrpc.el", sys.executable, str(PYZ))
    assert "Ran 5 tests, 5 results as expected" in check_run(*command)


def test_vscode_jsonrpc_makes_all_calls() -> None:
    assert "all calls answered" in check_run(need("node"), "vscode.js", sys.executable, str(PYZ))


def test_discover_is_valid_openrpc() -> None:
    script = 'process.stdout.write(JSON.stringify(require("@open-rpc/meta-schema").default))'
    schema = json.loads(check_run(need("node"), "-e", script))
    examples = [f"--methods={path}" for path in sorted((TOP / "examples").glob("*.py"))]
    _, replies, _ = run(request(1, "rpc.discover"), [sys.executable, PYZ, "rpc", *examples])
    assert len(replies[0]["result"]["methods"]) == 6 + 1 + 22
    # It refers to the schema of schemas by an address; that one comes with jsonschema.
    schemas = DRAFT7.create_resource(Draft7Validator.META_SCHEMA)
    registry: Registry[Any] = Registry().with_resource("https://meta.json-schema.tools", schemas)
    validator = Draft7Validator(schema, registry=registry)
    validator.validate(replies[0]["result"])
    assert not validator.is_valid({**replies[0]["result"], "methods": [{"name": 5}]})
