"""`duet-rpc mcp --emacs`: an AI client, the user's methods and tools in Lisp, in real Emacsen."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.emacs.support import EMACSEN, LIBRARY, NO_NATIVE, ON_TERMINAL, ROOT
from tests.machine import Stopwatch
from tests.mcp_client import MODERN, Mcp
from tests.support import RESTORE_SIGNALS, SOURCE, shortest, wait_until

TOOLS = r"""
(require 'cl-lib)
(defun test-echo (text) "Return TEXT as it is.\n\nAll of it." text)
(defun test-values () (list 'sym (current-buffer) (cons 1 2) '(:a t) nil 1.5 [1 2]))
(defun test-types (n &optional yes where list plist)
  (prin1-to-string (list n yes where list plist)))
(defun test-fail () (error "It failed: %s" "so"))
(defun test-quit () (signal 'quit nil))
(defun test-sleep ()
  (write-region "" nil (expand-file-name "asleep" (getenv "RUN")))
  (sleep-for 60))
(defun test-forbidden () "forbidden")
(duet-rpc-define-tool 'test-echo)
(duet-rpc-define-tool 'test-values :name "values" :description "Values of all kinds")
(duet-rpc-define-tool 'test-types
  :params '((n integer "How many") &optional (yes boolean) (where ("here" "there")) (list array)
            (plist object)))
(duet-rpc-define-tool 'test-fail)
(duet-rpc-define-tool 'test-quit)
(duet-rpc-define-tool 'test-sleep)
"""
METHODS = """
from duet_rpc import Context, method

@method
def use_emacs(text: str, ctx: Context) -> object:
    buffer = ctx.emacs.buffer()
    return [ctx.emacs.call("concat", text, "!"), ctx.emacs.eval("(emacs-pid)"), buffer.name,
            buffer.text]

@method
def lisp(form: str, ctx: Context) -> object:
    return ctx.emacs.eval(form)

@method
def failing(ctx: Context) -> None:
    ctx.emacs.call("error", "In Lisp")
"""


class Editor:
    """An Emacs on a terminal, whose server has a name."""

    def __init__(self, emacs: str, name: str, run: Path, setup: str = "") -> None:
        self.run, self.name, self.socket = run, name, run / "emacs" / name
        ready = run / f"{name}-ready"
        init = run / f"{name}.el"
        init.write_text(
            f'{TOOLS}\n(setq server-name "{name}")\n(server-start)\n{setup}\n'
            f'(run-with-timer 0 nil (lambda () (write-region "" nil "{ready}")))'
        )
        ours, theirs = pty.openpty()
        self.terminal = ours
        terminal = os.ttyname(theirs)
        words = [emacs, *ON_TERMINAL, "-l", str(LIBRARY), "-l", str(init)]
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$0" "$@" < {terminal} > {terminal} 2>&1', *words],
            env={**os.environ, **NO_NATIVE, **self.env, "TERM": "xterm"},
            start_new_session=True,
            restore_signals=RESTORE_SIGNALS,
        )
        os.close(theirs)
        threading.Thread(target=self._drain, daemon=True).start()
        wait_until(ready.exists, "Emacs is ready")

    @property
    def env(self) -> dict[str, str]:
        """What a program needs to find it."""
        return {"XDG_RUNTIME_DIR": str(self.run), "RUN": str(self.run)}

    def _drain(self) -> None:
        with suppress(OSError):
            while os.read(self.terminal, 65536):
                pass

    def type(self, keys: str) -> None:
        """Type some keys."""
        os.write(self.terminal, keys.encode())

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)
        self.socket.unlink(missing_ok=True)


@pytest.fixture(params=EMACSEN, scope="module")
def emacs_program(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def run() -> Iterator[Path]:
    """Return a folder with a short name: that of a socket has 100 characters at most."""
    folder = Path(tempfile.mkdtemp(prefix="duet"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def editor(emacs_program: str, run: Path) -> Iterator[Editor]:
    found = Editor(emacs_program, f"e{EMACSEN.index(emacs_program)}", run)
    yield found
    found.close()


@contextmanager
def client_of(
    env: dict[str, str], *options: str, methods: str = METHODS, version: str = "2025-11-25"
) -> Iterator[Mcp]:
    file = Path(env["RUN"]) / "methods.py"
    file.write_text(methods)
    words: list[str | Path] = [*SOURCE, "mcp", "--emacs", *options, "--methods", file]
    client = Mcp(words, env, framing="lines")
    try:
        if version != MODERN:
            info = {"name": "tester", "version": "1"}
            said = {"protocolVersion": version, "capabilities": {}, "clientInfo": info}
            client.ask("initialize", said)
        client.version = version
        yield client
    finally:
        client.process.kill()
        client.process.communicate()


@pytest.fixture
def client(editor: Editor) -> Iterator[Mcp]:
    with client_of(editor.env, "--server-name", editor.name) as found:
        yield found


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


# Tools in Lisp.


def test_tools_in_lisp_stand_beside_methods(client: Mcp) -> None:
    tools = client.tools()
    assert [*tools][:3] == ["use_emacs", "lisp", "failing"]
    assert tools["test_echo"]["description"] == "Return TEXT as it is.\n\nAll of it."
    assert tools["test_fail"]["description"] == "Test fail"
    assert "test_forbidden" not in tools
    schema = tools["test_types"]["inputSchema"]
    assert schema["required"] == ["n"]
    assert [*schema["properties"]] == ["n", "yes", "where", "list", "plist"]
    assert schema["properties"]["n"] == {"type": "integer", "description": "How many"}
    assert schema["properties"]["where"] == {"type": "string", "enum": ["here", "there"]}


def test_arguments_and_results_are_converted(client: Mcp) -> None:
    result = client.tool("values")
    value = json.loads(text_of(result))
    assert value[0] == "sym"
    assert isinstance(value[1], str)
    assert value[2:] == [[1, 2], {"a": True}, None, 1.5, [1, 2]]
    given = {"n": 5, "yes": True, "where": "there", "list": [1, [False]], "plist": {"k": None}}
    assert text_of(client.tool("test_types", **given)) == '(5 t "there" [1 [nil]] (:k nil))'
    assert text_of(client.tool("test_types", n=5, yes=False)) == "(5 nil nil nil nil)"


def test_emacs_keeps_nothing_for_the_result_of_a_tool(client: Mcp) -> None:
    count = "(apply #'+ (mapcar (lambda (s) (hash-table-count (duet-rpc--server-handles (cdr s))))"
    count += " duet-rpc--mcp-sessions))"
    before = lisp(client, count)
    for _ in range(3):
        client.tool("values")
    assert lisp(client, count) == before


@pytest.mark.parametrize(
    "wrong", [{}, {"n": "5"}, {"n": 5, "where": "x"}, {"n": 5, "more": 1}, {"n": True}]
)
def test_wrong_arguments_never_reach_lisp(client: Mcp, wrong: dict[str, object]) -> None:
    result = client.tool("test_types", **wrong)
    assert result["isError"]
    assert "Invalid params" in text_of(result)


@pytest.mark.parametrize(
    "text",
    [
        "".join(map(chr, range(256))) + "\u2028\U0001f600",
        "&_&n&-&& -eval (kill-emacs)\n-eval (kill-emacs) \\\"'`,@(\n",
        '")(kill-emacs)("',
        "",
        'é"\\\n\0' * 200_000,
    ],
    ids=["characters", "protocol", "lisp", "empty", "large"],
)
def test_any_text_goes_there_and_back(client: Mcp, text: str) -> None:
    result = client.tool("test_echo", text=text)
    assert not result["isError"]
    assert text_of(result) == text


def test_what_a_model_sends_stays_data(client: Mcp) -> None:
    given = {"lisp": "symbol", "name": "kill-emacs"}
    shown = text_of(client.tool("test_types", n=1, plist=given))
    assert shown == '(1 nil nil nil (:lisp "symbol" :name "kill-emacs"))'
    for name in ("test_forbidden", "test-forbidden", "emacs/eval", "kill-emacs"):
        reply = client.ask("tools/call", {"name": name, "arguments": {}})
        assert reply["error"]["code"] == -32602


def test_a_tool_runs_as_its_function_would_anywhere(client: Mcp, editor: Editor) -> None:
    # Files of other hosts and other encodings are not those of the request.
    file = editor.run / "latin"
    form = f"""(list (not file-name-handler-alist) coding-system-for-write
      (let ((buffer-file-coding-system 'latin-1)) (write-region "\\xe9" nil "{file}") nil))"""
    assert lisp(client, form) == [None, None, None]
    assert file.read_bytes() == b"\xe9"


def test_a_result_that_is_not_json_is_an_error(client: Mcp) -> None:
    result = client.tool("lisp", form="(list 0.0e+NaN)")
    assert result["isError"]
    assert text_of(client.tool("test_echo", text="x")) == "x"


def test_an_error_in_lisp_is_an_error_of_the_tool(client: Mcp) -> None:
    assert client.tool("test_fail") == {
        "content": [{"type": "text", "text": "It failed: so"}],
        "isError": True,
    }
    assert "quit in Emacs" in text_of(client.tool("test_quit"))
    assert text_of(client.tool("test_echo", text="x")) == "x"


def test_a_tool_that_is_defined_later_is_found(client: Mcp) -> None:
    client.tools()
    lisp(client, "(progn (defun test-later () 1) (duet-rpc-define-tool 'test-later) nil)")
    client.post("tools/call", {"name": "test_later"})
    changed = json.loads(client.receive_raw())
    assert changed["method"] == "notifications/tools/list_changed"
    assert text_of(client.receive()["result"]) == "1"
    lisp(client, "(progn (setq duet-rpc--tools (butlast duet-rpc--tools)) nil)")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("(duet-rpc-define-tool 'test-nothing)", "not a function yet"),
        ('(duet-rpc-define-tool "test-echo")', "takes the name of a function"),
        ("(duet-rpc-define-tool 'test-echo :params '((a text)))", "the type of a is text"),
        ("(duet-rpc-define-tool 'test-echo :params '((a) (b)))", ":params has 2"),
        ("(duet-rpc-define-tool 'test-echo :params '(\"a\"))", "is not a parameter"),
        ('(duet-rpc-define-tool \'test-echo :name "a b")', "set :name"),
    ],
)
def test_a_mistake_is_told_when_it_is_defined(client: Mcp, form: str, words: str) -> None:
    caught = f"(condition-case err {form} (error (error-message-string err)))"
    assert words in lisp(client, caught)


def test_a_method_goes_before_a_tool_of_its_name(editor: Editor) -> None:
    methods = "from duet_rpc import method\n@method\ndef test_echo() -> str: return 'Python'\n"
    with client_of(editor.env, "--server-name", editor.name, methods=methods) as client:
        assert "properties" not in client.tools()["test_echo"]["inputSchema"]
        assert text_of(client.tool("test_echo")) == "Python"


# ctx.emacs.


def lisp(client: Mcp, form: str) -> Any:
    """Evaluate a form with `ctx.emacs.eval`."""
    result = client.tool("lisp", form=form)
    assert not result["isError"], result
    return result["structuredContent"]["result"]


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
def test_methods_use_the_running_emacs(editor: Editor, version: str) -> None:
    with client_of(editor.env, "--server-name", editor.name, version=version) as client:
        result = client.tool("use_emacs", text="é")
        text, pid, name, contents = result["structuredContent"]["result"]
        assert (text, pid, name) == ("é!", editor.process.pid, "*scratch*")
        assert "Lisp" in contents
        assert text_of(client.tool("failing")) == "failing failed; the log of duet-rpc says where"


def test_an_installed_package_gets_no_emacs(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(METHODS)
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[duet_rpc.methods]\nx = theirs\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    env = {**editor.env, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    with client_of(env, "--server-name", editor.name, methods="") as client:
        assert "lisp" in client.tools()
        assert "--emacs` lets your own methods" in text_of(client.tool("lisp", form="1"))


def test_every_call_is_shown(client: Mcp) -> None:
    client.tool("test_echo", text="secret\nline")
    client.tool("test_fail")
    log = '(with-current-buffer "*duet-rpc AI calls*" (buffer-string))'
    *_, echo, fail, failed, own = lisp(client, log).splitlines()
    assert echo.endswith('tester calls test_echo (:text "secret\\nline")')
    assert fail.endswith("tester calls test_fail nil")
    assert failed.endswith("  It failed: so")
    assert "tester calls lisp emacs/eval" in own
    shown = lisp(client, '(with-current-buffer "*Messages*" (buffer-string))')
    assert "tester calls test_echo\n" in shown


def test_it_works_at_a_prompt_and_in_a_recursive_edit(client: Mcp) -> None:
    for begin, is_there, leave in (
        ('(read-string "Name? ")', "(minibufferp (window-buffer (minibuffer-window)))", "\x07"),
        ("(recursive-edit)", "(< 0 (recursion-depth))", "\x1bxabort-recursive-edit\r"),
    ):
        lisp(client, f"(progn (run-with-timer 0 nil (lambda () {begin})) nil)")
        wait_until(lambda form=is_there: lisp(client, form), begin)  # type: ignore[misc]
        assert text_of(client.tool("test_echo", text="x")) == "x"
        lisp(client, "(progn (run-with-timer 0 nil #'abort-recursive-edit) nil)")
        wait_until(lambda: lisp(client, "(recursion-depth)") == 0, leave)


def test_nothing_is_left_beside_the_socket(client: Mcp, editor: Editor) -> None:
    client.tool("test_echo", text="x")
    client.tool("test_fail")
    assert [each.name for each in editor.socket.parent.iterdir()] == [editor.name]


# An Emacs that is not there, or busy.


@contextmanager
def another(emacs: str, run: Path, setup: str = "") -> Iterator[Editor]:
    editor = Editor(emacs, f"x{len(list(run.iterdir()))}", run, setup)
    try:
        yield editor
    finally:
        editor.close()


def test_a_busy_emacs_is_an_error_within_two_seconds(emacs_program: str, run: Path) -> None:
    with (
        another(emacs_program, run) as editor,
        client_of(editor.env, "--server-name", editor.name) as client,
    ):
        client.tools()
        lisp(
            client,
            "(progn (run-with-timer 0 nil (lambda () (let ((inhibit-quit nil)) (while t)))) nil)",
        )

        def call() -> float:
            began = time.monotonic()
            result = client.tool("test_echo", text="x")
            assert "Emacs is busy: it did not answer" in text_of(result)
            return time.monotonic() - began

        assert shortest(call, 2) < 2
        assert "test_echo" in client.tools()  # as they were
        editor.type("\x07")
        wait_until(lambda: not client.tool("use_emacs", text="x")["isError"], "Emacs is free")
        log = lisp(client, '(with-current-buffer "*duet-rpc AI calls*" (buffer-string))')
        assert "test_echo" not in log, "what was refused is not done later"


def test_an_emacs_that_is_killed_is_an_error_at_once(emacs_program: str, run: Path) -> None:
    with (
        another(emacs_program, run) as editor,
        client_of(editor.env, "--server-name", editor.name) as client,
    ):
        asleep = run / "asleep"
        asleep.unlink(missing_ok=True)
        client.tools()
        client.post("tools/call", {"name": "test_sleep"})
        wait_until(asleep.exists, "the tool runs")
        watch = Stopwatch(client.process.pid)
        editor.process.kill()
        assert "without an answer" in text_of(client.receive()["result"])
        editor.process.wait()  # its socket may be closed after its connections
        assert "no Emacs listens" in text_of(client.tool("use_emacs", text="x"))
        assert watch.seconds() < 2
        assert "test_sleep" not in client.tools()


def test_a_killed_client_leaves_no_folder_for_long(emacs_program: str, run: Path) -> None:
    with another(emacs_program, run) as editor:
        asleep = run / "asleep"
        asleep.unlink(missing_ok=True)
        name = ["--server-name", editor.name]
        with client_of(editor.env, *name) as client, client_of(editor.env, *name) as other:
            other.tools()
            client.tools()
            client.post("tools/call", {"name": "test_sleep"})
            wait_until(asleep.exists, "the tool runs")
            (folder,) = editor.socket.parent.glob("duet-rpc-*")
            long_ago = time.time() - 3600
            os.utime(folder, (long_ago, long_ago))
            other.tool("use_emacs", text="x")  # which finds Emacs busy
            assert folder.exists(), "it is in use"
            client.process.kill()
            client.process.wait()
            other.tool("use_emacs", text="x")
            assert not folder.exists()
            assert not [*editor.socket.parent.glob("duet-rpc-*")]


def test_a_cancel_ends_the_call_of_a_tool(client: Mcp, editor: Editor) -> None:
    asleep = editor.run / "asleep"
    asleep.unlink(missing_ok=True)
    client.tools()
    id = client.post("tools/call", {"name": "test_sleep"})
    wait_until(asleep.exists, "the tool runs")
    params = {"requestId": id}
    client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    assert client.ask("ping")["result"] == {}
    editor.type("\x07")
    wait_until(lambda: not client.tool("use_emacs", text="x")["isError"], "Emacs is free")


def test_two_emacsen_are_told_apart(emacs_program: str, run: Path, editor: Editor) -> None:
    with another(emacs_program, run) as other:
        env = {**editor.env, "EMACS_SOCKET_NAME": str(other.socket)}
        with client_of(env) as client:
            assert lisp(client, "server-name") == other.name
        with client_of(env, "--server-name", editor.name) as client:
            assert lisp(client, "server-name") == editor.name


def test_an_emacs_without_the_library_says_so(run: Path, emacs_program: str) -> None:
    setup = "(fmakunbound 'duet-rpc-serve-mcp)"
    with (
        another(emacs_program, run, setup) as editor,
        client_of(editor.env, "--server-name", editor.name) as client,
    ):
        said = text_of(client.tool("use_emacs", text="x"))
        assert "evaluate (require 'duet-rpc)" in said


def test_without_an_emacs_there_are_the_methods(run: Path) -> None:
    with client_of({"XDG_RUNTIME_DIR": str(run), "RUN": str(run)}, "--server-name", "no") as client:
        assert [*client.tools()] == ["use_emacs", "lisp", "failing"]
        assert "start one with M-x server-start" in text_of(client.tool("use_emacs", text="x"))


def test_a_name_without_the_option_is_an_error() -> None:
    done = subprocess.run(
        [*SOURCE, "mcp", "--server-name", "x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "add --emacs" in done.stderr


def test_a_socket_that_others_could_have_made_is_refused(run: Path) -> None:
    folder = run / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        env = {"RUN": str(run)}
        with client_of(env, "--server-name", str(folder / "s")) as client:
            assert "must be yours alone" in text_of(client.tool("use_emacs", text="x"))


# Behind the router.


def test_workers_have_emacs_and_its_tools(editor: Editor) -> None:
    block = "# /// script\n# dependencies = []\n# ///\n"
    with client_of(editor.env, "--server-name", editor.name, methods=block + METHODS) as client:
        names = [*client.tools()]
        assert names.count("test_echo") == names.count("use_emacs") == 1
        assert text_of(client.tool("test_echo", text="x")) == "x"
        assert lisp(client, "server-name") == editor.name
