"""`duet-rpc doctor`: what goes wrong in practice, looked at one by one.

Each check is a function that returns or yields `Check`s and depends on no other, so that
one trouble does not hide the next. `fail` is for what does not work, `warn` for what
works with a loss or may be meant so. Whoever reads a failure must not need to search:
each one says what to do.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from time import monotonic

from duet_rpc import __version__
from duet_rpc.config import files as config
from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.log import escape
from duet_rpc.methods.sources import RELOAD
from duet_rpc.sinks import File, SinkError, open_sink
from duet_rpc.terminal import client as clients
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.pretty import paint, wants_color, write_json
from duet_rpc.terminal.request import leave_on_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from duet_rpc.config.settings import BackendSettings

OK, WARN, FAIL = "ok", "warn", "fail"
MARKS = {OK: ("✓", "ok", "good"), WARN: ("!", "!", "odd"), FAIL: ("✗", "X", "bad")}

PYTHON_MIN = (3, 9)
EMACS_MIN = (28, 1)
EMACS_TIMEOUT = 10.0
DAEMON_TIMEOUT = 10.0
LOADING_TIMEOUT = 60.0  # some methods import what takes its time

# The jsonrpc.el that comes with Emacs and a newer one that the user installed; nothing of
# the user's is loaded.
EMACS_PROGRAM = """(progn
  (princ (format "emacs %s\\n" emacs-version))
  (when (require 'jsonrpc nil t)
    (require 'package)
    (ignore-errors (package-load-all-descriptors))
    (let ((installed (cadr (assq 'jsonrpc package-alist)))
          (bundled (cdr (assq 'jsonrpc package--builtin-versions))))
      (princ (format "jsonrpc %s\\n"
                     (package-version-join
                      (if (and installed
                               (version-list-< bundled (package-desc-version installed)))
                          (package-desc-version installed)
                        (or bundled '(0)))))))))"""

MEMBERS = ("name", "status", "detail", "fix")


class Check:
    """What was looked at, and what was found."""

    __slots__ = MEMBERS

    def __init__(self, name: str, status: str, detail: str, fix: str | None = None) -> None:
        self.name = name
        self.status = status
        self.detail = detail
        self.fix = fix


def doctor(flags: Sequence[str], as_json: bool, no_color: bool) -> int:
    """Look at everything; return 1 where something is broken."""
    leave_on_signals()
    checks = []
    color = wants_color(sys.stdout, no_color)
    for check in examine(flags):
        checks.append(check)
        if not as_json:
            print(line(check, color), flush=True)
    broken = sum(check.status == FAIL for check in checks)
    odd = sum(check.status == WARN for check in checks)
    if as_json:
        report = [{name: getattr(each, name) for name in MEMBERS} for each in checks]
        write_json({"ok": not broken, "checks": report}, color)
    elif broken or odd:
        print(f"\n{broken} broken, {odd} to look at")
    else:
        print("\nall is well")
    return 1 if broken else 0


def line(check: Check, color: bool) -> str:
    """Write a check for a person, in ASCII where stdout has no place for more."""
    mark, plain_mark, paint_as = MARKS[check.status]
    text = f"{check.name:<12} {escape(check.detail, 1000)}"
    if check.fix:
        text += f"\n  {'fix:':<12} {escape(check.fix, 1000)}"
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        f"{mark}{text}".encode(encoding)
    except UnicodeEncodeError:
        mark = plain_mark
    return f"{paint(mark, paint_as, color)} {text}"


def examine(flags: Sequence[str]) -> Iterator[Check]:
    """Make all checks, the quick ones first."""
    yield check_python()
    yield from check_program()
    yield check_home()
    yield from check_config()
    yield check_log()
    yield from check_daemon(flags)
    yield from check_emacs()
    yield from check_elisp()


# Where we run.


def check_python() -> Check:
    """Look at the Python that runs this."""
    detail = f"{dotted(sys.version_info[:3])}, {sys.executable}"
    if sys.version_info[:2] < PYTHON_MIN:
        need = dotted(PYTHON_MIN)
        return Check("Python", FAIL, detail, f"install Python {need} or later and run this with it")
    return Check("Python", OK, detail)


def check_program() -> Iterator[Check]:
    """Look at the .pyz and where it unpacked itself, or at the installed package."""
    archive = clients.archive()
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if archive is None:
        yield Check("program", OK, f"{__version__}, package in {package}")
        return
    if os.access(archive, os.X_OK):
        yield Check("program", OK, f"{__version__}, {archive}")
    else:
        detail = f"{archive} can't be executed; it needs `python3` in front"
        yield Check("program", WARN, detail, f"chmod +x {archive}")
    yield check_python3()
    yield check_cache(archive, package)


def check_python3() -> Check:
    """Look at the Python that the first line of the .pyz asks for."""
    path = shutil.which("python3")
    if path is None:
        fix = "put one there, or start the .pyz with a Python of your choice in front"
        return Check("python3", WARN, "there is no python3 on PATH", fix)
    done = ask([path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"], 10.0)
    version = numbers(done)
    if not version:
        return Check("python3", WARN, f"{path} does not run", "mend it, or put another one first")
    if version < PYTHON_MIN:
        fix = f"put Python {dotted(PYTHON_MIN)} or later first, or start the .pyz with one"
        return Check("python3", WARN, f"python3 on PATH is {dotted(version)}, {path}", fix)
    return Check("python3", OK, f"{dotted(version)}, {path}")


def check_cache(archive: str, package: str) -> Check:
    """Look at the folder that the .pyz unpacks itself into; a module in it knows which."""
    sys.path.append(archive)
    from _unpack import list_roots

    roots: list[str] = list_roots()
    fix = "let it be yours, writable by you alone; or set XDG_CACHE_HOME to such a folder"
    if package.startswith("/proc/self/fd/"):
        tried = f"neither {' nor '.join(roots)} can" if len(roots) > 1 else f"{roots[0]} can't"
        return Check("cache", WARN, f"{tried} be used: each start is slower", fix)
    if roots and not package.startswith(roots[0] + os.sep):
        return Check("cache", WARN, f"{roots[0]} is not used; unpacked into {package}", fix)
    if len(roots) < 2:
        fix = "set HOME or XDG_CACHE_HOME"
        return Check("cache", WARN, f"no home directory; unpacked into {package}", fix)
    return Check("cache", OK, os.path.dirname(os.path.dirname(package)))


def check_home() -> Check:
    """Look at the home directory, which configuration and history live in."""
    home = os.environ.get("HOME")
    fix = "set HOME to a folder of yours"
    if not home:
        return Check("home", WARN, "HOME is not set: no configuration, no history", fix)
    if not os.path.isdir(home):
        return Check("home", WARN, f"{home} is no folder: no configuration, no history", fix)
    return Check("home", OK, home)


# What the user wrote.


def check_config() -> Iterator[Check]:
    """Look at the configuration files in force."""
    try:
        directory: str | None = os.getcwd()
    except OSError:
        directory = None
    try:
        files = config.find_files(os.environ, directory)
        settings = config.load(os.environ, directory)
    except config.ConfigError as error:
        fix = "correct it, or move the file away; no command works until then"
        yield Check("config", FAIL, str(error), fix)
    else:
        if not files:
            yield Check("config", OK, "no file; the defaults are in force")
        for path in files:
            yield Check("config", OK, path)
        for warning in settings.warnings:
            what, _, fix = warning.partition(". ")
            yield Check("trust", WARN, what, fix)
        for backend in settings.backends.values():
            yield check_backend(backend)


def check_backend(backend: BackendSettings) -> Check:
    """Look at what a backend would run; whether it runs, `gateway --check` says."""
    name = f"backend {backend.name}"
    program = backend.command[0]
    path = shutil.which(program, path=backend.env.get("PATH"))
    if backend.cwd is not None and not os.path.isdir(backend.cwd):
        fix = f"mkdir -p {backend.cwd}, or correct backends.{backend.name}.cwd"
        return Check(name, FAIL, f"its working directory is not there: {backend.cwd}", fix)
    if path is None:
        where = "is not there or can't be executed" if os.sep in program else "is not on PATH"
        fix = f"install it, or correct backends.{backend.name}.command"
        return Check(name, FAIL, f"{program} {where}", fix)
    return Check(name, OK, f"{path}; `duet-rpc gateway --check` starts it")


def check_log() -> Check:
    """Look at the file that the log goes to."""
    name = os.environ.get("DUET_RPC_LOG")
    if not name:
        return Check("log", OK, "stderr")
    path = os.path.abspath(os.path.expanduser(name))
    was_there = os.path.exists(path)
    try:
        sink = open_sink(name)  # as the daemon would
    except SinkError as why:
        folder = os.path.dirname(path)
        fix = "name another file in DUET_RPC_LOG, or let this one be yours"
        if not os.path.isdir(folder):
            fix = f"mkdir -p {folder}, or name another file in DUET_RPC_LOG"
        return Check("log", FAIL, f"{path} {why}: the log goes to stderr", fix)
    sink.close()
    if isinstance(sink, File) and not was_there:
        os.unlink(sink.name)
    return Check("log", OK, sink.name)


# The daemon.


def check_daemon(flags: Sequence[str]) -> Iterator[Check]:
    """Start a daemon: it answers, it says nothing else, it has the methods.

    The first of its flags is its log level.
    """
    start = monotonic()
    client = None
    trouble = ""
    try:
        with tempfile.TemporaryFile() as log:
            try:
                # To stderr, to be quoted here.
                environ = {**os.environ, "DUET_RPC_LOG": ""}
                client = Client(clients.daemon_command(flags), log, environ)
                with client:
                    answer = client.call("version", seconds=DAEMON_TIMEOUT)
                    elapsed = (monotonic() - start) * 1000
                    methods = check_methods(client)
            except (DaemonError, RpcError) as error:
                trouble = str(error)
            last = last_line(log)
    except OSError as error:
        detail = f"no folder for temporary files: {error.strerror}"
        yield Check("daemon", FAIL, detail, "set TMPDIR to a folder of yours that has room")
        return
    if trouble:
        words = ["duet-rpc", "call", "--log-level", "debug", *flags[2:], "listMethods"]
        fix = f"run `{shlex.join(words)}` and read what it says"
        yield Check("daemon", FAIL, f"{trouble}: {last}" if last else trouble, fix)
    elif answer != {"version": __version__}:
        detail = f"it is not this version, {__version__}: {answer!r}"
        yield Check("daemon", FAIL, detail, "remove the other one, or look at PYTHONPATH")
    else:
        yield Check("daemon", OK, f"answers after {elapsed:.0f} ms")
    if client is not None and not client.clean:
        fix = "find what prints when Python starts: sitecustomize, a .pth file, PYTHONPATH"
        yield Check("stdout", FAIL, "something else than frames was written to stdout", fix)
    elif not trouble:
        yield Check("stdout", OK, "nothing but frames")
    if not trouble:
        yield from methods


def last_line(log: IO[bytes]) -> str:
    """Return the last line that the daemon wrote to stderr."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return str(lines[-1]) if lines else ""


def check_methods(client: Client) -> list[Check]:
    """Look at the user's methods: how many there are, and what could not be loaded."""
    entries = client.call("listMethods", seconds=LOADING_TIMEOUT)
    names = [each.get("name") for each in entries] if isinstance(entries, list) else []
    if RELOAD not in names:
        return [Check("methods", OK, "none of yours")]
    loaded = client.call(RELOAD, seconds=LOADING_TIMEOUT)
    if not isinstance(loaded, dict):
        raise DaemonError(f"{RELOAD} returned no object")
    fix = f"mend that line, then call {RELOAD}"
    failed = [Check("methods", FAIL, str(problem), fix) for problem in loaded["problems"]]
    return [Check("methods", OK, f"{len(loaded['methods'])} of yours"), *failed]


# Emacs.


def check_emacs() -> Iterator[Check]:
    """Look at Emacs and its jsonrpc.el."""
    path = shutil.which("emacs")
    need = dotted(EMACS_MIN)
    if path is None:
        fix = f"install Emacs {need} or later, or add the folder of its program to PATH"
        yield Check("Emacs", WARN, "there is no emacs on PATH", fix)
        return
    said = ask([path, "-Q", "--batch", "--eval", EMACS_PROGRAM], EMACS_TIMEOUT)
    if said is None:
        detail = f"{path} did not answer within {EMACS_TIMEOUT:g} s"
        yield Check("Emacs", FAIL, detail, "see whether `emacs -Q --batch` ends by itself")
        return
    found = dict(row.split(" ", 1) for row in said.splitlines() if " " in row)
    version = numbers(found.get("emacs"))
    if not version:
        detail = f"{path} does not say its version"
        yield Check("Emacs", FAIL, detail, "see what `emacs -Q --batch --version` prints")
        return
    detail = f"{found['emacs']}, {path}"
    if version < EMACS_MIN:
        yield Check("Emacs", FAIL, detail, f"install Emacs {need} or later")
    else:
        yield Check("Emacs", OK, detail)
    if "jsonrpc" in found:
        yield Check("jsonrpc.el", OK, found["jsonrpc"])
    else:
        fix = "reinstall Emacs with all of its lisp files, or M-x package-install jsonrpc"
        yield Check("jsonrpc.el", FAIL, "Emacs can't load it", fix)


def check_elisp() -> Iterator[Check]:
    """Look at duet-rpc.el beside the .pyz: both must be of one release."""
    archive = clients.archive()
    if archive is None:
        return
    path = os.path.join(os.path.dirname(archive), "duet-rpc.el")
    if not os.path.exists(path):  # the .pyz may be a link
        path = os.path.join(os.path.dirname(os.path.realpath(archive)), "duet-rpc.el")
    fix = f"put the duet-rpc.el of release {__version__} there"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            head = file.read(4096)
    except FileNotFoundError:
        yield Check("duet-rpc.el", WARN, f"{path} is missing", fix)
        return
    except OSError as error:
        yield Check("duet-rpc.el", FAIL, f"{path} can't be read: {error.strerror}", fix)
        return
    version = re.search(r"^;; (?:Package-)?Version: *(\S+)", head, re.MULTILINE)
    if version is None:
        yield Check("duet-rpc.el", FAIL, f"{path} does not say its version", fix)
    elif version.group(1) != __version__:
        detail = f"{path} is {version.group(1)}, the .pyz is {__version__}"
        yield Check("duet-rpc.el", FAIL, detail, fix)
    else:
        yield Check("duet-rpc.el", OK, f"{version.group(1)}, {path}")


# Asking other programs.


def ask(command: Sequence[str], seconds: float) -> str | None:
    """Return what a program prints; None where it does not end in time."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that it can be ended with all that it started
        )
    except OSError:
        return ""
    try:
        return process.communicate(timeout=seconds)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def numbers(text: str | None) -> tuple[int, ...]:
    """Read a version's numbers: `28.2` as (28, 2)."""
    match = re.match(r"\d+(?:\.\d+)*", (text or "").strip())
    return tuple(int(each) for each in match.group().split(".")) if match else ()


def dotted(version: tuple[int, ...]) -> str:
    """Write a version's numbers."""
    return ".".join(str(each) for each in version)
