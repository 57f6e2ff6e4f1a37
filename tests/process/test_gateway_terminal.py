"""The gateway from a terminal: `call`, `--check`, the doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway import BACKEND, backend, write_config
from tests.support import PATIENCE
from tests.terminal import Person, environment, invoke


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    started = {"a": "a.pid", "b": "b.pid"}
    one = {name: backend(f"pid-file={tmp_path / file}") for name, file in started.items()}
    mcp = {"command": [*BACKEND, "lines", "mcp", f"pid-file={tmp_path / 'm.pid'}"]}
    config = write_config(tmp_path / "c.toml", {**one, "m": {**mcp, "dialect": "mcp"}})
    return environment(tmp_path / "home", DUET_RPC_CONFIG=str(config))


def test_a_call_starts_the_one_backend_that_it_needs(env: dict[str, str], tmp_path: Path) -> None:
    code, out, err = invoke(["call", "a/echo", "x=1.5", "y=text"], env)
    assert (code, json.loads(out), err) == (0, {"x": 1.5, "y": "text"}, "")
    assert [path.name for path in tmp_path.glob("*.pid")] == ["a.pid"]


def test_a_tool_is_called_by_its_name(env: dict[str, str], tmp_path: Path) -> None:
    code, out, err = invoke(["call", "m__add", "x=1"], env)
    assert (code, err) == (0, "")
    assert json.loads(out) == {"name": "add", "arguments": {"x": 1}}
    assert [path.name for path in tmp_path.glob("*.pid")] == ["m.pid"]
    assert "m__tool0" in invoke(["call", "tools/list"], env)[1]
    assert json.loads(invoke(["call", "gateway/status"], env)[1])["pending"] == 0


def test_errors_of_backends_are_for_people(env: dict[str, str]) -> None:
    code, out, err = invoke(["call", "a/die", "code=7"], env)
    assert (code, out) == (1, "")
    assert "Request failed: backend a: ended with exit code 7 (-32803)" in err
    assert '"stderr": "last words"' in err
    code, _, err = invoke(["call", "a/nonsense"], env)
    assert (code, "Method not found (-32601)" in err) == (1, True)
    code, _, err = invoke(["call", "c/nonsense"], env)
    assert (code, "Method not found: c/nonsense (-32601)" in err) == (1, True)


def test_a_request_from_a_backend_is_answered(env: dict[str, str]) -> None:
    code, out, _ = invoke(["call", "a/ask", '{"id": 1, "method": "window/show"}'], env)
    assert code == 0
    assert json.loads(out)["error"]["code"] == -32601


def test_progress_of_a_tool_is_a_bar(env: dict[str, str]) -> None:
    with Person(["call", "m/progress"], env) as person:
        person.see("[1] m")
        assert person.leave() == 0


def test_own_methods_may_have_names_like_a_backends(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("from duet_rpc import method\n@method\ndef x__y() -> int: return 5\n")
    assert invoke(["call", "--methods", str(file), "x__y"], env)[:2] == (0, "5\n")


def test_check_shows_how_each_backend_is(env: dict[str, str]) -> None:
    code, out, err = invoke(["gateway", "--check"], env)
    assert (code, err) == (0, "")
    rows = out.splitlines()
    assert rows[0].startswith("✓ a  plain, content-length")
    assert rows[0].endswith("answers")
    assert rows[2].endswith("hostile 1.0, MCP 2025-11-25, 1 tools and more")


def test_check_names_what_does_not_work(env: dict[str, str]) -> None:
    one: dict[str, dict[str, object]] = {
        "dead": backend("die-at-once=4"),
        "missing": {"command": ["/no/such/program"], "dialect": "mcp"},
        "refusing": backend("mcp", "refuse-handshake", framing="lines", dialect="mcp"),
        "language-server": backend(dialect="lsp"),
    }
    write_config(Path(env["DUET_RPC_CONFIG"]), one)
    code, out, _ = invoke(["gateway", "--check"], env)
    assert code == 1
    lines = out.splitlines()
    assert lines[0].startswith("✗ dead ")
    assert "ended with exit code 4" in lines[0]
    assert lines[1].strip() == "not today"
    assert "/no/such/program can't be started: No such file or directory" in lines[2]
    assert 'refused the handshake with "no"' in out
    assert any(line.startswith("✓ language-server") for line in lines)
    assert invoke(["gateway", "--check"], {**env, "LANG": "C", "PYTHONIOENCODING": "ascii"})[0] == 1


def test_check_is_an_option_of_the_gateway_only(env: dict[str, str]) -> None:
    code, out, err = invoke(["rpc", "--check"], env)
    assert (code, out) == (2, "")
    assert "--check is an option of gateway, not of rpc" in err
    assert invoke(["gateway", "--methods", "x"], env)[0] == 2


def test_the_doctor_looks_at_what_backends_would_run(env: dict[str, str]) -> None:
    one: dict[str, dict[str, object]] = {
        "good": {"command": ["sh"]},
        "missing": {"command": ["no-such-program"]},
        "lost": {"command": ["sh"], "cwd": "/no/where"},
    }
    write_config(Path(env["DUET_RPC_CONFIG"]), one)
    code, out, _ = invoke(["doctor", "--json"], env)
    checks = {each["name"]: each for each in json.loads(out)["checks"]}
    assert code == 1
    assert checks["backend good"]["status"] == "ok"
    assert checks["backend missing"]["detail"] == "no-such-program: not found on PATH"
    assert checks["backend missing"]["fix"]
    assert checks["backend lost"]["detail"] == "working directory not found: /no/where"


def test_at_a_terminal_the_gateway_says_what_it_waits_for(env: dict[str, str]) -> None:
    with Person(["gateway"], env) as person:
        person.see("python -m duet_rpc gateway: waiting for JSON-RPC 2.0 requests on stdin")
        person.type("\x04")
        assert person.leave() == 0


def test_a_list_has_what_the_router_adds(env: dict[str, str]) -> None:
    code, out, _ = invoke(["call", "listMethods"], env)
    names = [each["name"] for each in json.loads(out)]
    assert code == 0
    assert {"gateway/status", "m__tool0"} <= set(names)


def test_a_wrong_name_is_answered_without_starting_every_backend(
    env: dict[str, str], tmp_path: Path
) -> None:
    for word, expected in (
        ("c/x", "  there is no backend c\n  available: a, b, m\n"),
        ("mm__x", "  there is no backend mm\n  did you mean 'm'?\n"),
        ("m", "  m is a backend: call m/METHOD or m__TOOL\n"),
        ("a/", "  add the name of a method: a/METHOD\n"),
        ("gateway/x", "duet-rpc: Method not found: gateway/x (-32601)\n"),
        ("gateway/stop", "  received:  missing\n  accepted:  a, b, m\n"),
    ):
        code, out, err = invoke(["call", word], env)
        assert (code, out) == (1, ""), word
        assert err.endswith(expected), (word, err)
    assert not [path.name for path in tmp_path.glob("*.pid")]
    assert invoke(["call", "a/nonsense"], env)[2].endswith("  backend a has no method nonsense\n")
    assert [path.name for path in tmp_path.glob("*.pid")] == ["a.pid"]


def test_an_unknown_tool_and_a_failed_tool_differ(env: dict[str, str]) -> None:
    code, out, err = invoke(["call", "m__tool"], env)
    assert (code, out) == (1, "")
    assert err.endswith("  did you mean 'm__tool0'?\n")
    assert "the gateway is leaving" not in err
    code, out, err = invoke(["call", "m__fail"], env)
    assert (code, json.loads(out)["isError"]) == (1, True)
    assert err == "duet-rpc: the tool reports an error\n"
    assert invoke(["call", "m/tools/call", "name=fail"], env)[0] == 1
    assert invoke(["call", "a/echo", "isError=true"], env)[0] == 0


def test_check_explains_a_backend_that_does_not_answer(env: dict[str, str]) -> None:
    mute = {"command": ["sh", "-c", "echo Password: >&2; read name; sleep 60"], "dialect": "mcp"}
    write_config(Path(env["DUET_RPC_CONFIG"]), {"mute": mute})
    code = "from duet_rpc import cli; from duet_rpc.terminal import check; check.TIMEOUT = 1.5;"
    done = subprocess.run(
        [sys.executable, "-c", f"{code} cli.main()", "gateway", "--check"],
        env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    first, second = done.stdout.splitlines()
    assert first.endswith("within 1.5 s; is it a server of dialect mcp and framing lines?")
    assert second.strip() == "Password:"
