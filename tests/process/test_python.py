"""`[methods] python`: another Python for the methods, and what it needs to have."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import PYZ, SOURCE, TOP, Client, daemon, request, run
from tests.terminal import Person, environment, invoke

METHODS = """\
import os, sys
from duet_rpc import method

@method
def where() -> list:
    import onlythere
    ours = {"DUET_RPC_CALLER", "DUET_RPC_SWITCHED_PYTHON"}
    return [sys.executable, onlythere.NAME, sorted(ours.intersection(os.environ))]
"""


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment that has a module of its own, and neither pip nor duet-rpc."""
    folder = tmp_path_factory.mktemp("python") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "onlythere.py").write_text("NAME = 'there'\n")
    return folder


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    methods = tmp_path / "home" / ".config" / "duet-rpc" / "methods"
    methods.mkdir(parents=True)
    (methods / "words.py").write_text(METHODS)
    return environment(tmp_path / "home")


@pytest.fixture(params=["the .pyz", "the package"])
def command(request: pytest.FixtureRequest, env: dict[str, str]) -> list[str]:
    """Return both ways to start the program; the package is in any Python, through PYTHONPATH."""
    if request.param == "the .pyz":
        env["PYTHONPATH"] = ""
        return [sys.executable, str(PYZ)]
    env["PYTHONPATH"] = os.pathsep.join([str(TOP), *site.getsitepackages()])
    return SOURCE


def configure(env: dict[str, str], python: Path | str) -> Path:
    """Name a Python in the user's configuration; return its file."""
    path = Path(env["HOME"]) / ".config" / "duet-rpc" / "config.toml"
    path.write_text(f'[log]\n\n[methods]\npython = "{python}"\n')
    return path


def call_tool(client: Client, name: str) -> object:
    """Call a tool of an MCP server; return its structured result."""
    info = {"name": "x", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    for id, method, given in ((1, "initialize", params), (2, "tools/call", {"name": name})):
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": given}
        client.send(json.dumps(message).encode() + b"\n")
        reply = json.loads(client.receive_raw())
        while reply.get("id") != id:  # a notification
            reply = json.loads(client.receive_raw())
    return reply["result"]["structuredContent"]["result"]


def test_every_command_runs_methods_with_it(
    env: dict[str, str], venv: Path, command: list[str]
) -> None:
    python = venv / "bin" / "python"
    configure(env, python)
    expected = [str(python), "there", []]
    code, out, err = invoke(["call", "where"], env, None, command)
    assert (code, json.loads(out), err) == (0, expected, "")
    _, out, _ = invoke(["call", "--pdb", "where"], env, None, command)
    assert json.loads(out) == expected
    _, out, _ = invoke(["console"], env, b"where\n", command)
    assert json.loads(out) == expected
    code, (reply,), _ = run(request(1, "where"), [*command, "rpc"], env)
    assert (code, reply["result"]) == (0, expected)
    for words in (["mcp"], ["mcp", "--gateway"]):
        with daemon([*command, *words], env, "lines") as client:
            assert call_tool(client, "where") == expected
    code, out, _ = invoke(["doctor", "--json"], {**env, "PATH": ""}, None, command)
    checks = {each["name"]: each for each in json.loads(out)["checks"]}
    assert checks["methods.python"]["status"] == "ok"
    assert checks["methods.python"]["detail"].endswith(f", {python}")
    assert checks["methods"]["detail"] == "1 loaded"


def test_the_process_stays_the_same_one(env: dict[str, str], venv: Path) -> None:
    configure(env, venv / "bin" / "python")
    env["PYTHONPATH"] = os.pathsep.join([str(TOP), *site.getsitepackages()])
    process = subprocess.Popen(
        [*SOURCE, "rpc"], env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    _, log = process.communicate(b"", 20)
    assert f"started: pid {process.pid}," in log.decode()
    assert process.returncode == 0


def test_home_path_and_relative_names(env: dict[str, str], venv: Path, tmp_path: Path) -> None:
    env["PYTHONPATH"] = ""
    command = [sys.executable, str(PYZ)]
    (tmp_path / "home" / "link").symlink_to(venv)
    config = Path(env["HOME"]) / ".config" / "duet-rpc"
    for name, expected in (
        ("~/link/bin/python", tmp_path / "home" / "link" / "bin" / "python"),
        ("../../link/bin/python", config / "../../link/bin/python"),
        ("python", venv / "bin" / "python"),
    ):
        configure(env, name)
        path = f"{venv / 'bin'}{os.pathsep}{env['PATH']}"
        _, out, _ = invoke(["call", "where"], {**env, "PATH": path}, None, command)
        assert json.loads(out)[0] == os.path.normpath(expected)


def test_the_python_that_runs_is_not_started_again(env: dict[str, str]) -> None:
    path = configure(env, sys.executable)
    code, _, err = invoke(["call", "version"], env)
    assert (code, err) == (0, "")
    assert f"methods.python  {sys.executable}  ({path})" in invoke(["config"], env)[1]


def test_another_name_of_itself_is_no_endless_loop(env: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\necho again >> "{tmp_path}/count"\nexec "{sys.executable}" "$@"\n'
    )
    script.chmod(0o755)
    configure(env, script)
    assert invoke(["rpc"], env)[0] == 0
    assert (tmp_path / "count").read_text() == "again\n"


@pytest.mark.parametrize("kind", ["missing", "folder", "no program", "dangling", "not on PATH"])
def test_a_python_that_cannot_be_run_is_named(
    env: dict[str, str], tmp_path: Path, kind: str
) -> None:
    python = tmp_path / "python"
    why = f"{python} cannot be run: No such file or directory; correct the path, or remove the key"
    if kind == "folder":
        python.mkdir()
        why = f"{python} is a folder; correct"
    elif kind == "no program":
        python.write_text("x")
        why = f"{python} cannot be run: Permission denied; correct"
    elif kind == "dangling":
        python.symlink_to("nowhere")
    elif kind == "not on PATH":
        python = Path("python0.9")
        why = "python0.9 was not found on PATH"
    path = configure(env, python)
    for words in (
        ["rpc"],
        ["mcp"],
        ["call", "version"],
        ["call", "--pdb", "x"],
        ["console"],
        ["list"],
    ):
        code, out, err = invoke(words, env)
        assert (code, out) == (2, ""), words
        assert err.startswith(f"duet-rpc: {path}:4: methods.python: {why}")
    code, out, _ = invoke(["doctor", "--json"], env)
    assert code == 1
    checks = {each["name"]: each for each in json.loads(out)["checks"]}
    assert checks["methods.python"]["status"] == "fail"
    assert checks["methods.python"]["fix"].startswith(f"correct methods.python in {path}")
    assert invoke(["config"], env)[0] == 0


def test_duet_rpc_need_not_be_installed_in_it(env: dict[str, str], venv: Path) -> None:
    python = venv / "bin" / "python"
    configure(env, python)
    # Not from the working directory, either.
    command = ["sh", "-c", 'cd / && unset PYTHONPATH && exec "$0" "$@"', *SOURCE]
    code, out, err = invoke(["call", "where"], env, None, command)
    assert (code, err) == (0, "")
    assert json.loads(out) == [str(python), "there", []]
    _, out, _ = invoke(["doctor"], env, None, command)
    assert "✓ methods.python" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("python = 3\n", ":2: methods.python must be the path of a Python, such as"),
        ('python = ""\n', ":2: methods.python must be"),
        ('pyhton = "x"\n', ":2: unknown key 'methods.pyhton'; did you mean 'python'?"),
    ],
)
def test_a_wrong_value_is_refused(env: dict[str, str], text: str, message: str) -> None:
    path = Path(env["HOME"]) / ".config" / "duet-rpc" / "config.toml"
    path.write_text(f"[methods]\n{text}")
    code, _, err = invoke(["rpc"], env)
    assert code == 2
    assert err.startswith(f"duet-rpc: {path}{message}")


def test_a_projects_python_counts_once_it_is_trusted(env: dict[str, str], tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    python = tmp_path / "project" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\ntouch "{ran}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    project = tmp_path / "project"
    (project / ".duet-rpc.toml").write_text('[methods]\npython = "bin/python"\n')
    for words in (["rpc"], ["call", "version"], ["list"], ["doctor"]):
        invoke(words, env, cwd=project)
    assert not ran.exists()
    out = invoke(["trust", "--yes"], env, cwd=project)[1]
    assert f"  run {python}  (the Python for all methods)\n" in out
    assert invoke(["call", "version"], env, cwd=project)[0] == 0
    assert ran.exists()


def test_a_terminal_stays_a_terminal(env: dict[str, str], venv: Path) -> None:
    configure(env, venv / "bin" / "python")
    env["PYTHONPATH"] = ""
    with Person(["console"], env, [sys.executable, str(PYZ)]) as person:
        person.see("duet>")
        person.type("where\r")
        person.see("there")
        person.see("duet>")
        person.type("\x04")
        assert person.leave() == 0
