"""`M-x duet-rpc-install`: each way to install the program, from a release that is a local copy."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.emacs.support import EMACSEN, LIBRARY, PYZ, ROOT, meta_x, on_terminal, run
from tests.support import RESTORE_SIGNALS

INSTALLED = f"duet-rpc {__version__} is installed and running: "

OTHER_VERSION = b"print('9.9.9')\n"
NO_PROGRAM = b"import sys; sys.exit('this is not it')\n"


def is_same(one: Path, other: Path) -> bool:
    """Compare two files; pytest would take minutes to show how megabytes differ."""
    return one.read_bytes() == other.read_bytes()


class Release(BaseHTTPRequestHandler):
    """Serves the files of a release; the first part of the path says what is wrong with them."""

    def do_GET(self) -> None:
        """Send a file of the release, or what a bad server sends."""
        _, fault, name = self.path.split("/")
        if fault == "moved":
            self.send_response(302)
            self.send_header("Location", f"/good/{name}")
            self.end_headers()
            return
        programs = {"other": OTHER_VERSION, "broken": NO_PROGRAM}
        program = programs.get(fault) or PYZ.read_bytes()
        sums = f"{hashlib.sha256(program).hexdigest()}  duet-rpc.pyz\n{'0' * 64}  duet-rpc.el\n"
        if fault == "unlisted":
            sums = sums.replace("duet-rpc.pyz", "duet-rpc.exe")
        if fault == "changed":
            program = program[:-1] + bytes([program[-1] ^ 1])
        content = {"SHA256SUMS": sums.encode(), "duet-rpc.pyz": program}[name]
        if fault == "missing" and name == "duet-rpc.pyz":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault in ("cut", "stall") and name == "duet-rpc.pyz":
            self.wfile.write(content[:100_000])
            self.wfile.flush()
            if fault == "stall":
                (self.server.stalled).set()  # type: ignore[attr-defined]
                (self.server.done).wait(60)  # type: ignore[attr-defined]
            return
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def release() -> Iterator[ThreadingHTTPServer]:
    """Run a server with the files of a release."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Release)
    server.stalled = threading.Event()  # type: ignore[attr-defined]
    server.done = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.done.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def library(environment: dict[str, str], tmp_path: Path) -> Path:
    """Return a copy of the library with nothing beside it, and no program on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    (tmp_path / "tmp").mkdir()
    environment["PATH"] = f"{programs}:/usr/bin:/bin"
    environment["TMPDIR"] = str(tmp_path / "tmp")
    environment.pop("DUET_RPC_PYZ")
    copy = tmp_path / "site" / LIBRARY.name
    copy.parent.mkdir()
    shutil.copy(LIBRARY, copy)
    return copy


def url(release: ThreadingHTTPServer, fault: str) -> str:
    """Return where a release is, with a fault or with none."""
    return f"http://127.0.0.1:{release.server_port}/{fault}/"


def install(base: str, before: str = "", *, seconds: int = 60) -> str:
    """Return a form that installs the program from a URL and prints how that went."""
    return f"""(progn
      (setq duet-rpc-release-url "{base}")
      {before}
      (defalias 'y-or-n-p (lambda (prompt) (princ (concat prompt "\n")) t))
      (duet-rpc-install)
      (with-current-buffer "*duet-rpc install*"
        (with-timeout ({seconds} (princ "not done in time"))
          (while header-line-format (accept-process-output nil 0.05)))
        (princ (buffer-string))
        (when (duet-rpc--running-p (duet-rpc--server))
          (princ (format "%S" (duet-rpc-request "version"))))))"""


@pytest.mark.parametrize("how", ["good", "moved", "file"])
def test_install_downloads_the_release(
    emacs: str,
    environment: dict[str, str],
    library: Path,
    release: ThreadingHTTPServer,
    tmp_path: Path,
    how: str,
) -> None:
    """Install it; it is beside the library, and its daemon answers."""
    base = url(release, how)
    if how == "file":
        sums = f"{hashlib.sha256(PYZ.read_bytes()).hexdigest()}  duet-rpc.pyz\n"
        (tmp_path / "SHA256SUMS").write_text(sums)
        shutil.copy(PYZ, tmp_path)
        base = f"file://{tmp_path}/"
    program = library.with_suffix(".pyz")
    program.write_bytes(b"the old one")
    shown = run(emacs, environment, "-l", library, "--eval", install(base)).stdout
    assert f"{INSTALLED}{program}\n" in shown, shown
    assert f'(:version "{__version__}")' in shown
    assert f"Install duet-rpc {__version__} (download it)? " in shown
    assert is_same(program, PYZ)
    assert os.access(program, os.X_OK)
    assert left(tmp_path) == ["duet-rpc.el", "duet-rpc.pyz"]


def left(tmp_path: Path) -> list[str]:
    """Return the files beside the library, and those in the folder for temporary ones."""
    names = [path.name for folder in ("site", "tmp") for path in (tmp_path / folder).iterdir()]
    return sorted(name for name in names if not name.startswith(("emacs", ".")))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("missing", "duet-rpc.pyz: http 404"),
        ("unlisted", "SHA256SUMS does not have duet-rpc.pyz"),
        ("cut", "(100000 bytes) does not have the checksum in SHA256SUMS; it is incomplete"),
        ("changed", "does not have the checksum in SHA256SUMS; it is incomplete, or not what"),
        ("stall", "duet-rpc.pyz: nothing has come for 1 s"),
        ("other", f"The release's duet-rpc.pyz is version 9.9.9, not {__version__}"),
        ("broken", "exited abnormally with code 1"),
        ("refused", "SHA256SUMS: "),
    ],
)
def test_a_failed_download_keeps_what_was_there(
    emacs: str,
    environment: dict[str, str],
    library: Path,
    release: ThreadingHTTPServer,
    tmp_path: Path,
    fault: str,
    reason: str,
) -> None:
    """Install from a server with a fault; the old program stays, and the reason is shown."""
    program = library.with_suffix(".pyz")
    program.write_bytes(b"the old one")
    base = "http://127.0.0.1:1/" if fault == "refused" else url(release, fault)
    form = install(base, "(setq duet-rpc-timeout 1)")
    shown = run(emacs, environment, "-l", library, "--eval", form).stdout
    assert "duet-rpc is not installed: " in shown, shown
    assert reason in shown
    assert program.read_bytes() == b"the old one"
    assert left(tmp_path) == ["duet-rpc.el", "duet-rpc.pyz"]


@pytest.mark.parametrize("full", ["site", "tmp"])
def test_a_full_disk_keeps_what_was_there(
    emacs: str,
    environment: dict[str, str],
    library: Path,
    release: ThreadingHTTPServer,
    tmp_path: Path,
    full: str,
) -> None:
    """Install it where the disk has less room than it needs."""
    disk = tmp_path / full
    small = tmp_path / "small"
    small.write_text(
        "#!/bin/sh\nexec unshare --user --map-root-user --mount sh -c '"
        f'mount -t tmpfs -o size=64k tmpfs {disk} && exec "$0" "$@"\' {emacs} "$@"\n'
    )
    small.chmod(0o755)
    if run(str(small), environment, "--eval", "(kill-emacs 5)").returncode != 5:
        pytest.skip("a disk cannot be mounted here")
    before = f"""(setq duet-rpc--file "{tmp_path}/site/duet-rpc.el")
      (write-region "old" nil "{disk}/duet-rpc.pyz" nil 'quiet)"""
    look = f"""(princ (list (directory-files "{disk}" nil "duet-rpc")
        (with-temp-buffer (insert-file-contents "{disk}/duet-rpc.pyz") (buffer-string))))"""
    form = f"(progn {install(url(release, 'good'), before)} {look})"
    moved = library.rename(tmp_path / library.name)
    shown = run(str(small), environment, "-l", moved, "--eval", form).stdout
    assert "duet-rpc is not installed: " in shown, shown
    assert "No space left on device" in shown
    assert shown.endswith("((duet-rpc.pyz) old)")


@pytest.mark.parametrize("how", ["kill -9", "kill the buffer"])
def test_an_interrupted_download_leaves_nothing(
    emacs: str,
    environment: dict[str, str],
    library: Path,
    release: ThreadingHTTPServer,
    tmp_path: Path,
    how: str,
) -> None:
    """Interrupt it in the middle of the program."""
    form = f"""(progn
      (setq duet-rpc-release-url "{url(release, "stall")}")
      (defalias 'y-or-n-p #'always)
      (duet-rpc-install)
      (with-timeout (30)
        (while (not (string-search "Downloading"
                      (buffer-local-value 'header-line-format (get-buffer "*duet-rpc install*"))))
          (accept-process-output nil 0.05)))
      (when (equal (getenv "HOW") "kill -9") (sleep-for 60))
      (kill-buffer "*duet-rpc install*")
      (with-timeout (5) (while (process-list) (accept-process-output nil 0.05)))
      (princ (process-list)))"""
    process = subprocess.Popen(
        [emacs, "-Q", "--batch", "-l", str(library), "--eval", form],
        env={**environment, "HOW": how},
        cwd=environment["HOME"],
        stdout=subprocess.PIPE,
        text=True,
        restore_signals=RESTORE_SIGNALS,
    )
    assert release.stalled.wait(60)  # type: ignore[attr-defined]
    if how == "kill -9":
        process.send_signal(signal.SIGKILL)
    shown = process.communicate(timeout=60)[0]
    assert shown == ("" if how == "kill -9" else "nil")
    assert left(tmp_path) == ["duet-rpc.el"]


def test_install_falls_back_on_the_emacs_directory(
    emacs: str, environment: dict[str, str], library: Path, release: ThreadingHTTPServer
) -> None:
    """Install it where nobody may write beside the library."""
    form = install(url(release, "good"), '(setq duet-rpc--file "/proc/duet-rpc.el")')
    Path(environment["HOME"], ".emacs.d").mkdir()
    shown = run(emacs, environment, "-l", library, "--eval", form).stdout
    assert f"{INSTALLED}~/.emacs.d/duet-rpc.pyz\n" in shown, shown


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a wheel of this version."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = folder / "sources"
    copy_sources(sources)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, sources], check=True)
    return folder


def copy_sources(target: Path) -> None:
    """Copy the files that git knows."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


ONE = pytest.mark.parametrize("emacs", EMACSEN[:1], indirect=True)
"""One Emacs is enough for what takes long and happens in other programs."""


@ONE
@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_install_uses_a_tool_that_is_there(
    emacs: str,
    environment: dict[str, str],
    library: Path,
    release: ThreadingHTTPServer,
    wheels: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    tool: str,
) -> None:
    """Install it where there is no release to download, but uv or pipx."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    script = tmp_path / "bin" / tool
    script.write_text(f'#!/bin/sh\nexec {uv} {"" if tool == "uv" else "tool run pipx"} "$@"\n')
    script.chmod(0o755)
    settings = ("PIP_", "SSL_", "UV_")
    environment |= {name: os.environ[name] for name in os.environ if name.startswith(settings)}
    environment["PIP_FIND_LINKS"] = f"{wheels} {environment.get('PIP_FIND_LINKS', '')}"
    environment["UV_FIND_LINKS"] = str(wheels)
    environment["UV_CACHE_DIR"] = str(tmp_path_factory.getbasetemp().parent / "uv-cache")
    form = install(url(release, "missing"), seconds=150)
    shown = run(emacs, environment, "-l", library, "--eval", form).stdout
    assert f"{INSTALLED}~/.local/bin/duet-rpc\n" in shown, shown
    assert f"Install duet-rpc {__version__} (download it, or else {tool} " in shown
    assert left(tmp_path) == ["duet-rpc.el"]


@ONE
def test_install_builds_from_the_sources(
    emacs: str, environment: dict[str, str], release: ThreadingHTTPServer, library: Path
) -> None:
    """Install it in a clone that a package manager links to, without a release to download."""
    clone = library.parent / "clone"
    copy_sources(clone)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    form = install(url(release, "missing"), seconds=150)
    link = library.parent / "build" / "duet-rpc.el"
    link.parent.mkdir()
    link.symlink_to(clone / "elisp" / "duet-rpc.el")
    run(emacs, environment, "--eval", f'(byte-compile-file "{link}")')
    shown = run(emacs, environment, "-l", link.with_suffix(".elc"), "--eval", form).stdout
    assert f"{INSTALLED}{clone}/dist/duet-rpc.pyz\n" in shown, shown
    assert is_same(clone / "dist" / "duet-rpc.pyz", PYZ)


def test_installing_is_offered_where_the_program_is_missing(
    emacs: str, environment: dict[str, str], library: Path, release: ThreadingHTTPServer
) -> None:
    """Type M-x duet-rpc-call, and y at the question; at the end, the message says it runs."""
    setup = f"""(setq duet-rpc--file "{library}"
                      duet-rpc-release-url "{url(release, "good")}")"""
    done = """(let ((buffer (get-buffer "*duet-rpc install*")))
                (not (and buffer (buffer-local-value 'header-line-format buffer))))"""
    form = "(list (current-message) (duet-rpc-status))"
    keys = [meta_x("duet-rpc-call"), "y"]
    shown = on_terminal(emacs, environment, form, setup=setup, keys=keys, settled=done)
    assert shown == f"({INSTALLED}{library.with_suffix('.pyz')} ready)"


def test_nothing_is_installed_without_consent(
    emacs: str, environment: dict[str, str], library: Path, release: ThreadingHTTPServer
) -> None:
    """Type n at the question; the message says where the program was looked for, and what to do."""
    setup = f"""(setq duet-rpc--file "{library}"
                      duet-rpc-release-url "{url(release, "good")}")"""
    form = '(list (current-message) (get-buffer "*duet-rpc install*"))'
    shown = on_terminal(emacs, environment, form, setup=setup, keys=[meta_x("duet-rpc-call"), "n"])
    assert shown.startswith("(Cannot find the program.  Looked for\n"), shown
    assert shown.endswith("M-x duet-rpc-install installs it nil)")
    assert not library.with_suffix(".pyz").exists()
