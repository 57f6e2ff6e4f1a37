"""eglot with pylsp, pyright and rassumfrassum behind the daemon, in an Emacs that has eglot."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.emacs.support import ROOT, TESTS, run
from tests.gateway import write_config

SERVERS = ROOT / "build" / "servers"
PROGRAMS = SERVERS / "venv" / "bin"
COMMANDS = {
    "pylsp": [str(PROGRAMS / "pylsp")],
    "rass": [str(PROGRAMS / "rass"), "--", str(PROGRAMS / "pylsp")],
    "pyright": ["node", str(SERVERS / "node_modules/pyright/langserver.index.js"), "--stdio"],
}

SOURCE = '''\
import json


def greet(name):
    """Say hello."""
    return json.dumps(name)


greet(undefined_name)
json.dum
'''


@pytest.fixture(params=sorted(COMMANDS))
def with_eglot(
    request: pytest.FixtureRequest, emacs: str, environment: dict[str, str], tmp_path: Path
) -> dict[str, str]:
    """Return an environment in which the backend `py` is a language server."""
    command = COMMANDS[request.param]
    if run(emacs, environment, "--eval", "(require 'eglot)").returncode != 0:
        pytest.skip(f"{emacs} has no eglot")
    if not all(Path(word).exists() for word in command if "/" in word):
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing(f"{request.param} is not installed")
    for name in ("project", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(SOURCE, "utf-8")
    config = write_config(tmp_path / "c.toml", {"py": {"command": command, "dialect": "lsp"}})
    return {
        **environment,
        "DUET_RPC_CONFIG": str(config),
        "PROJECT": str(tmp_path / "project"),
        "OTHER": str(tmp_path / "other"),
    }


def value(emacs: str, environment: dict[str, str], form: str) -> str:
    """Evaluate a form in an Emacs with eglot, and return what it prints."""
    result = run(emacs, environment, "-l", TESTS / "eglot.el", "--eval", f"(princ {form})")
    assert result.returncode == 0, result.stdout
    return result.stdout.splitlines()[-1]


def test_eglot_uses_a_server_behind_the_daemon(emacs: str, with_eglot: dict[str, str]) -> None:
    """See diagnostics and documentation, find a definition, complete a name, and shut down."""
    form = """(let (pid)
      (test-visit)
      (setq pid (test-pid))
      (list (test-until (test-diagnostics))
            (string-match-p "Say hello" (test-hover))
            (progn (test-go-to "greet") (call-interactively #'xref-find-definitions) (test-line))
            (progn (test-go-to "json.dum") (completion-at-point) (test-line))
            (progn (eglot-shutdown (eglot-current-server)) (eglot-managed-p))
            (test-until (not (process-attributes pid)))
            (duet-rpc-status)
            (progn (test-visit) (numberp (string-match-p "Say hello" (test-hover))))))"""
    shown = value(emacs, with_eglot, form)
    assert re.fullmatch(r"\(\d+ \d+ def greet\(name\): json\.dump nil t ready t\)", shown), shown


PYLSP = pytest.mark.parametrize("with_eglot", ["pylsp"], indirect=True)
"""The quicker one, where it makes no difference."""


@pytest.mark.parametrize(
    ("with_eglot", "what"),
    [
        ("pylsp", "the server"),
        ("pyright", "the server"),
        ("pylsp", "the daemon"),
        ("pylsp", "a restart"),
        ("pylsp", "M-x restart"),
    ],
    indirect=["with_eglot"],
)
def test_eglot_initializes_a_server_again(
    emacs: str, with_eglot: dict[str, str], what: str
) -> None:
    """Kill the server, or the daemon in front of it, while a request is pending."""
    end = {
        "the server": "(signal-process pid 9)",
        "the daemon": "(signal-process (duet-rpc--server-process (duet-rpc--server)) 9)",
        "a restart": '(duet-rpc-request "gateway/restart" \'(:backend "py"))',
        "M-x restart": "(duet-rpc-restart)",
    }[what]
    form = f"""(let (pid failed)
      (test-visit)
      (test-until (test-diagnostics))
      (setq pid (test-pid))
      (jsonrpc-async-request (eglot-current-server) :textDocument/hover
        (eglot--TextDocumentPositionParams) :error-fn (lambda (&rest _) (setq failed t))
        :success-fn (lambda (&rest _) (setq failed t)))
      {end}
      (test-until failed)
      (test-until (and (eglot-managed-p) (duet-rpc-status) (eq 'ready (duet-rpc-status))
                       (ignore-errors (/= pid (or (test-pid) pid)))
                       (slot-value (eglot-current-server) 'initialized)))
      (list (numberp (string-match-p "Say hello" (test-hover)))
            (numberp (test-until (test-diagnostics)))
            (progn (test-go-to "json.dum") (completion-at-point) (test-line))))"""
    assert value(emacs, with_eglot, form) == "(t t json.dump)"


@PYLSP
def test_eglot_does_not_start_what_was_stopped(emacs: str, with_eglot: dict[str, str]) -> None:
    """Stop the daemon; eglot lets go of its buffers."""
    form = """(progn
      (test-visit)
      (duet-rpc-stop)
      (test-until (not (eglot-managed-p)))
      (list (duet-rpc-status) (process-list)))"""
    assert value(emacs, with_eglot, form) == "(stopped nil)"


@PYLSP
def test_a_language_server_serves_one_project(emacs: str, with_eglot: dict[str, str]) -> None:
    """Visit a file of a second project; the message says what can be done."""
    form = """(let ((text ""))
      (test-visit)
      (condition-case err (test-visit (getenv "OTHER")) (error (setq text (cadr err))))
      (find-file (expand-file-name "a.py" (getenv "PROJECT")))
      (list text (numberp (string-match-p "Say hello" (test-hover)))))"""
    assert value(emacs, with_eglot, form) == (
        "(py already serves another project.  M-x eglot-shutdown there first, or add a "
        "backend with another name t)"
    )
