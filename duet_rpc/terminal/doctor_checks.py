"""The checks of the doctor: Python, the program, the configuration, the log and the daemon.

`FAIL` is for what does not work, `WARN` for what works with a loss or may be intended. Every
failure and warning has a fix that can be followed without searching.
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
from typing import TYPE_CHECKING, NamedTuple

from duet_rpc import __version__, program
from duet_rpc.config import files as config
from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.sinks import File, SinkError, open_sink
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.daemon import last_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from duet_rpc.config.processes import BackendSettings

OK, WARN, FAIL = "ok", "warn", "fail"

PYTHON_MIN = (3, 9)
PYTHON_TIMEOUT = 10.0
DAEMON_TIMEOUT = 10.0


class Check(NamedTuple):
    """The result of one check; `fix` says what to do and is None where `status` is OK."""

    name: str
    status: str
    detail: str
    fix: str | None = None


# Python and the program.


def check_python() -> Check:
    """Name the Python that runs this; one that is too old has ended the program before."""
    return Check("Python", OK, f"{dotted(sys.version_info[:3])}, {sys.executable}")


def check_program() -> Iterator[Check]:
    """Check the .pyz and its cache, or name the installed package."""
    archive = program.archive_path()
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if archive is None:
        yield Check("program", OK, f"{__version__}, package in {package}")
        return
    if os.access(archive, os.X_OK):
        yield Check("program", OK, f"{__version__}, {archive}")
    else:
        detail = f"{archive} is not executable; it runs only as `python3 {archive}`"
        yield Check("program", WARN, detail, f"chmod +x {archive}")
    yield check_python3()
    yield check_cache(archive, package)


def check_python3() -> Check:
    """Check the python3 on PATH, which the first line of the .pyz asks for."""
    path = shutil.which("python3")
    if path is None:
        fix = f"add one to PATH, or start it as `{sys.executable} {program.program_name()}`"
        return Check("python3", WARN, "no python3 on PATH", fix)
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    version = numbers(output_of([path, "-c", code], PYTHON_TIMEOUT))
    if not version:
        fix = "reinstall it, or put another python3 before it on PATH"
        return Check("python3", WARN, f"{path} does not run", fix)
    if version < PYTHON_MIN:
        need = dotted(PYTHON_MIN)
        fix = f"put Python {need} or later before it on PATH, or start the .pyz with one"
        return Check("python3", WARN, f"python3 on PATH is {dotted(version)}, {path}", fix)
    return Check("python3", OK, f"{dotted(version)}, {path}")


def check_cache(archive: str, package: str) -> Check:
    """Check the folder that the .pyz unpacks itself into."""
    sys.path.append(archive)
    from _unpack import list_roots  # a module of the .pyz itself

    roots: list[str] = list_roots()
    fix = "make it a folder that only you can write to, or set XDG_CACHE_HOME to such a folder"
    if package.startswith("/proc/self/fd/"):
        tried = f"neither {' nor '.join(roots)} can" if len(roots) > 1 else f"{roots[0]} cannot"
        return Check("cache", WARN, f"{tried} be used; each start is slower", fix)
    if roots and not package.startswith(roots[0] + os.sep):
        return Check("cache", WARN, f"{roots[0]} is not used; unpacked into {package}", fix)
    if len(roots) < 2:
        fix = "set HOME or XDG_CACHE_HOME"
        return Check("cache", WARN, f"no home directory; unpacked into {package}", fix)
    return Check("cache", OK, os.path.dirname(os.path.dirname(package)))


def check_home() -> Check:
    """Check the home directory, which has the configuration and the history."""
    home = os.environ.get("HOME")
    if home and os.path.isdir(home):
        return Check("home", OK, home)
    what = f"{home} is not a folder" if home else "HOME is not set"
    detail = f"{what}; there is no configuration and no history"
    return Check("home", WARN, detail, "set HOME to your home directory")


# The configuration and the log.


def check_config() -> Iterator[Check]:
    """Check the configuration files in force, their trust and their backends."""
    try:
        files = config.find_files(os.environ, config.working_directory(), [])
        settings = config.load_config()
    except config.ConfigError as error:
        fix = "correct the file, or move it away; until then no command works"
        yield Check("config", FAIL, str(error), fix)
    else:
        if not files:
            yield Check("config", OK, "no file; defaults are in force")
        for path in files:
            yield Check("config", OK, path)
        for warning in settings.warnings:
            what, _, fix = warning.partition(". ")
            yield Check("trust", WARN, what, fix)
        for backend in settings.backends.values():
            yield check_backend(backend)


def check_backend(backend: BackendSettings) -> Check:
    """Check that a backend's program exists, without starting it."""
    name = f"backend {backend.name}"
    executable = backend.command[0]
    path = shutil.which(executable, path=backend.env.get("PATH"))
    if backend.cwd is not None and not os.path.isdir(backend.cwd):
        fix = f"mkdir -p {backend.cwd}, or correct backends.{backend.name}.cwd"
        return Check(name, FAIL, f"working directory not found: {backend.cwd}", fix)
    if path is None:
        where = "not found or not executable" if os.sep in executable else "not found on PATH"
        fix = f"install it, or correct backends.{backend.name}.command"
        return Check(name, FAIL, f"{executable}: {where}", fix)
    return Check(name, OK, f"{path}; `{program.program_name()} gateway --check` starts it")


def check_log() -> Check:
    """Check that the log file can be written."""
    name = os.environ.get("DUET_RPC_LOG")
    if not name:
        return Check("log", OK, "stderr")
    path = os.path.abspath(os.path.expanduser(name))
    existed = os.path.exists(path)
    try:
        sink = open_sink(name)  # as the daemon does
    except SinkError as why:
        folder = os.path.dirname(path)
        fix = "set DUET_RPC_LOG to another file, or make this one writable for you"
        if not os.path.isdir(folder):
            fix = f"mkdir -p {folder}, or set DUET_RPC_LOG to another file"
        return Check("log", FAIL, f"{path} {why}; the log goes to stderr", fix)
    sink.close()
    if isinstance(sink, File) and not existed:
        os.unlink(sink.name)
    return Check("log", OK, sink.name)


# The daemon.


def check_daemon(
    flags: Sequence[str], check_methods: Callable[[Client], list[Check]]
) -> Iterator[Check]:
    """Start a daemon; check its version, its stdout and the user's methods.

    `flags` begin with `--log-level LEVEL`.
    """
    start = monotonic()
    client = None
    problem = ""
    try:
        with tempfile.TemporaryFile() as log:
            try:
                # It logs to stderr, so that its last line can be quoted.
                environ = {**os.environ, "DUET_RPC_LOG": ""}
                client = Client(program.daemon_command(flags), log, environ)
                with client:
                    answer = client.call("version", seconds=DAEMON_TIMEOUT)
                    elapsed = (monotonic() - start) * 1000
                    methods = check_methods(client)
            except (DaemonError, RpcError) as error:
                problem = str(error)
            last = last_line(log)
    except OSError as error:
        detail = f"cannot create a temporary file: {error.strerror}"
        yield Check("daemon", FAIL, detail, "set TMPDIR to a folder that you can write to")
        return
    if problem:
        words = shlex.join(["call", "--log-level", "debug", *flags[2:], "listMethods"])
        fix = f"run `{program.program_name()} {words}` and read its log"
        yield Check("daemon", FAIL, f"{problem}: {last}" if last else problem, fix)
    elif answer != {"version": __version__}:
        detail = f"expected version {__version__}, but the daemon answers {answer!r}"
        yield Check("daemon", FAIL, detail, "uninstall the other version, or check PYTHONPATH")
    else:
        yield Check("daemon", OK, f"answers after {elapsed:.0f} ms")
    if client is not None and not client.clean:
        fix = "find what prints when Python starts: sitecustomize, a .pth file, PYTHONPATH"
        yield Check("stdout", FAIL, "it has output that is not a frame", fix)
    elif not problem:
        yield Check("stdout", OK, "nothing but frames")
    if not problem:
        yield from methods


# Other programs.


def output_of(command: Sequence[str], timeout: float) -> str | None:
    """Run a program and return its stdout; None on a timeout, "" where it cannot be started."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that it can be killed with all that it has started
        )
    except OSError:
        return ""
    try:
        return process.communicate(timeout=timeout)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def numbers(text: str | None) -> tuple[int, ...]:
    """Parse the version at the beginning of a text: `28.2` is (28, 2)."""
    match = re.match(r"\d+(?:\.\d+)*", (text or "").strip())
    return tuple(int(each) for each in match.group().split(".")) if match else ()


def dotted(version: tuple[int, ...]) -> str:
    """Return a version as text: (28, 2) is `28.2`."""
    return ".".join(str(each) for each in version)
