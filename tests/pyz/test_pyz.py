"""The one file, as somebody has it who downloaded it."""

from __future__ import annotations

import ast
import fcntl
import importlib.util
import marshal
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from duet_rpc import __version__
from tests.hostile import GOOD, ROWS, Answer, Row, check
from tests.machine import wait_for_loguru, wait_until_computing
from tests.support import PYZ, TOP, Client, daemon, frame, request, run

VERSION = {"version": __version__}


def home(folder: Path) -> dict[str, str]:
    """Make an environment with an empty home directory."""
    (folder / "home").mkdir(exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    return {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "XDG_CACHE_HOME": "",
        "XDG_CONFIG_HOME": "",
        "PYTHONPATH": "",
    }


def builds(folder: Path) -> list[str]:
    """List the builds that are unpacked below a folder."""
    return sorted(path.parent.name for path in folder.rglob("site-packages"))


def plant(build: Path) -> None:
    """Put code into a build that says so if it is run, with a manifest that fits."""
    name = "site-packages/duet_rpc/__init__.py"
    for compiled in build.glob("site-packages/duet_rpc/__pycache__/__init__.*"):
        compiled.unlink()
    (build / name).write_text("raise SystemExit('planted')\n")
    os.utime(build / name, (0, 0))
    first = (build / "manifest").read_text().splitlines()[0].split(" ")
    first[:2] = "1", "0"
    lines = [" ".join(first), f"{(build / name).stat().st_size} {name}"]
    (build / "manifest").write_text("\n".join(lines))


def version(python: str, env: dict[str, str]) -> object:
    """Make one call to a new daemon."""
    code, replies, log = run(request(1), [python, PYZ, "rpc"], env)
    assert code == 0, log
    assert "Traceback" not in log
    return replies[0]["result"]


# On every Python.


def test_the_table_of_hostile_inputs(python: str, tmp_path: Path) -> None:
    with daemon([python, PYZ, "rpc"], home(tmp_path)) as client:
        for row in ROWS:
            expected = [*row.expected, Answer("good")]
            check([Row(row.name, b"", expected)], client.exchange(row.data + GOOD, len(expected)))
        code, replies, log = client.finish()
    assert (code, replies) == (0, [])
    assert "Traceback" not in log


def test_without_any_place_to_write_it_runs_from_memory(python: str, tmp_path: Path) -> None:
    env = {**home(tmp_path), "HOME": "/proc", "TMPDIR": "/proc"}
    assert version(python, env) == VERSION
    _, _, log = run(request(1, "setLogLevel", ["debug"]), [python, PYZ, "rpc"], env)
    assert "started" in log
    assert not builds(tmp_path)


@pytest.mark.parametrize("place", ["", "/proc"], ids=["from disk", "from memory"])
def test_a_method_that_uses_loguru_logs_to_the_same_place(
    python: str, tmp_path: Path, place: str
) -> None:
    path = tmp_path / "late.py"
    path.write_text(
        "from duet_rpc import method\n@method\ndef f() -> int:\n"
        "    from loguru import logger\n    logger.info('theirs')\n    return 1\n"
    )
    env = home(tmp_path)
    if place:
        env.update(HOME=place, TMPDIR=place)
    flags = ["--methods", str(path)]
    with daemon([python, PYZ, "rpc", *flags], env) as client:
        client.call("version")
        wait_for_loguru(client.process.pid)
        assert [client.call("f"), client.call("f")] == [1, 1]
        code, _, log = client.finish()
    assert code == 0
    theirs = [line.split(maxsplit=1)[1] for line in log.splitlines() if "theirs" in line]
    assert theirs == ["INFO  theirs"] * 2


def test_shivs_own_variables_lead_to_shivs_own_ways(python: str, tmp_path: Path) -> None:
    # Too long a name for a socket, such as Python's own compiler makes to share its work.
    scratch = tmp_path / ("long" * 30)
    scratch.mkdir()
    env = {**home(tmp_path), "SHIV_ROOT": str(tmp_path / "shiv"), "TMPDIR": str(scratch)}
    assert version(python, env) == VERSION
    assert len(builds(tmp_path / "shiv")) == 1


def test_the_six_calls_and_the_exit(python: str, tmp_path: Path) -> None:
    with daemon([python, PYZ, "rpc"], home(tmp_path)) as client:
        assert client.call("initialize")["serverInfo"]["name"] == "duet-rpc"
        assert len(client.call("listMethods")) == 6
        assert len(client.call("describeMethods")) == 6
        assert client.call("version") == VERSION
        assert client.call("setLogLevel", {"level": "debug"})["success"] is True
        wait_for_loguru(client.process.pid)
        assert client.call("shutdown") == {"message": "Shutting down gracefully"}
        code, _, log = client.finish()
    assert code == 0
    assert "started" in log
    assert "DEBUG method=shutdown" in log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(python: str, tmp_path: Path, number: signal.Signals) -> None:
    with daemon([python, PYZ, "rpc"], home(tmp_path)) as client:
        client.call("version")
        client.signal(number)
        code, seconds = client.wait()
    assert code == 0
    assert seconds < 2.0


def test_a_configuration_file_is_read(python: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[log]\nlevel = "debug"\n')
    env = {**home(tmp_path), "DUET_RPC_CONFIG": str(path)}
    _, _, log = run(request(1), [python, PYZ, "rpc"], env)
    assert "DEBUG method=version" in log


def test_the_users_methods(python: str, tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text(
        "from duet_rpc import method\n@method\ndef loop() -> None:\n  while True: pass\n"
    )
    examples = sorted(set((TOP / "examples").glob("*.py")) - set(TOP.glob("examples/test_*.py")))
    flags = [f"--methods={path}" for path in (*examples, loop)]
    with daemon([python, PYZ, "rpc", *flags], home(tmp_path)) as client:
        result = client.call("text.readability", {"text": "Hello big world. Yes indeed!"})
        assert result["words"] == 5
        pretty = client.call("reformat_json", {"text": "[1]"})
        assert pretty == "[\n  1\n]\n"
        client.send(request(2, "loop"))
        wait_until_computing(client.process.pid)
        client.send(frame({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 2}}))
        assert client.receive()["error"]["code"] == -32800
        assert client.call("version", id=3) == VERSION
        code, _, log = client.finish()
    assert code == 0
    assert "could not be loaded" not in log


def test_help_and_version(python: str, tmp_path: Path) -> None:
    for word, text in (("--version", f"{__version__}\n"), ("--help", "DUET_RPC_LOG")):
        done = subprocess.run(
            [python, PYZ, word],
            capture_output=True,
            text=True,
            env={**os.environ, **home(tmp_path)},
            timeout=20,
            check=True,
        )
        assert text in done.stdout
        assert done.stderr == ""


# The first start.


def test_ten_processes_racing_to_unpack_it_all_answer(tmp_path: Path) -> None:
    env = home(tmp_path)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: version(sys.executable, env), range(10)))
    assert answers == [VERSION] * 10
    assert len(builds(tmp_path)) == 1
    left = [path.name for path in (tmp_path / "home/.cache/duet-rpc").iterdir()]
    assert not [name for name in left if name.endswith(".tmp")]


def test_killed_while_unpacking_it_starts_the_next_time(tmp_path: Path) -> None:
    env = home(tmp_path)
    for delay in (0.1, 0.2, 0.3, 0.5):
        client = Client([sys.executable, PYZ, "rpc"], env)
        time.sleep(delay)  # on any machine, one of them is in the middle of it
        client.process.kill()
        client.process.communicate()
    assert version(sys.executable, env) == VERSION


def test_what_is_unpacked_belongs_to_the_user_alone(tmp_path: Path) -> None:
    old = os.umask(0o002)
    try:
        version(sys.executable, home(tmp_path))
    finally:
        os.umask(old)
    root = tmp_path / "home" / ".cache" / "duet-rpc"
    for folder in (root, *root.glob("*/"), *root.glob("*/site-packages")):
        if folder.is_dir():
            assert folder.stat().st_mode & 0o077 == 0, folder


def test_a_temporary_cache_moves_home_when_that_is_writable(tmp_path: Path) -> None:
    env = home(tmp_path)
    assert version(sys.executable, {**env, "HOME": ""}) == VERSION
    assert not builds(tmp_path / "home")
    assert version(sys.executable, env) == VERSION
    assert builds(tmp_path / "home") == builds(tmp_path / "tmp")


@pytest.mark.parametrize("trouble", ["unwritable home", "missing home", "no home", "not ours"])
def test_without_a_home_directory_it_unpacks_elsewhere(tmp_path: Path, trouble: str) -> None:
    env = home(tmp_path)
    if trouble == "unwritable home":
        env["HOME"] = "/proc" if Path("/proc").is_dir() else "/dev"
    elif trouble == "missing home":
        env["HOME"] = str(tmp_path / "never" / "made")
    elif trouble == "no home":
        env["HOME"] = ""
    else:
        root = tmp_path / "home" / ".cache" / "duet-rpc"
        root.mkdir(parents=True)
        root.chmod(0o777)
    assert version(sys.executable, env) == VERSION
    assert len(builds(tmp_path / "tmp")) == 1
    assert not builds(tmp_path / "home")
    assert not (tmp_path / "never").exists()


def test_without_a_writable_place_it_says_what_to_do(tmp_path: Path) -> None:
    # As on a system that has no files in memory.
    (tmp_path / "sitecustomize.py").write_text("import os\ndel os.memfd_create\n")
    env = {**home(tmp_path), "HOME": "/proc", "TMPDIR": "/proc", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, PYZ, "version"], env={**os.environ, **env}, timeout=60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "Set XDG_CACHE_HOME or TMPDIR" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_is_planted_in_a_private_folder_would_run(tmp_path: Path) -> None:
    # So that the tests below can fail.
    env = home(tmp_path)
    version(sys.executable, env)
    (build,) = tmp_path.glob("home/.cache/duet-rpc/*-*")
    plant(build)
    assert run(b"", [sys.executable, PYZ, "rpc"], env)[2] == "planted\n"


def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path) -> None:
    env = home(tmp_path)
    version(sys.executable, env)
    (packages,) = tmp_path.glob("home/.cache/duet-rpc/*/site-packages")
    plant(packages.parent)
    packages.chmod(0o777)
    assert version(sys.executable, env) == VERSION


def test_a_cache_inside_a_folder_of_others_is_not_trusted(tmp_path: Path) -> None:
    # Who can write to the outer folder can put a link to something of ours in it, and
    # let it lead elsewhere a moment later.
    env = home(tmp_path)
    version(sys.executable, env)
    root = tmp_path / "home" / ".cache" / "duet-rpc"
    (packages,) = root.glob("*/site-packages")
    plant(packages.parent)
    planted = tmp_path / "planted"
    packages.rename(planted)
    packages.symlink_to(planted)
    root.chmod(0o777)
    assert version(sys.executable, env) == VERSION
    if os.geteuid() == 0:
        root.chmod(0o700)
        os.chown(root, 12345, 12345)
        assert version(sys.executable, env) == VERSION


@pytest.mark.parametrize("warm", [False, True], ids=["first start", "later"])
@pytest.mark.parametrize("nowhere", [False, True], ids=["at home", "in memory"])
def test_descriptors_that_are_closed_from_the_start_stay_closed(
    tmp_path: Path, warm: bool, nowhere: bool
) -> None:
    env = home(tmp_path)
    if nowhere:
        env = {**env, "HOME": "", "TMPDIR": "/proc/no"}
    if warm:
        version(sys.executable, env)
    words = f"{sys.executable} {PYZ} rpc"
    for way, code, said in (
        ("<&-", 0, "stdin closed, shutting down gracefully"),
        (">&-", 1, "stdout is closed: the client is gone"),
    ):
        done = subprocess.run(
            ["sh", "-c", f"{words} {way}"],
            input=None if "<" in way else request(1),
            env={**os.environ, **env}, capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        assert done.returncode == code
        assert said in done.stderr.decode()


def test_a_relative_tmpdir_is_none(tmp_path: Path) -> None:
    env = {**home(tmp_path), "HOME": "", "TMPDIR": "here"}
    done = subprocess.run(
        [sys.executable, PYZ, "version"], env={**os.environ, **env}, cwd=tmp_path, timeout=60,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == __version__
    assert not (tmp_path / "here").exists()


def test_a_python_that_is_too_old_says_so(tmp_path: Path) -> None:
    with zipfile.ZipFile(PYZ) as archive:
        ast.parse(archive.read("__main__.py"), feature_version=(3, 4))
    for old in Path(os.environ["PYENV_ROOT"]).glob("versions/*/bin/python"):
        number = tuple(map(int, old.parts[-3].split(".")[:2])) if old.parts[-3][0].isdigit() else ()
        if not () < number < (3, 9):
            continue
        done = subprocess.run(
            [old, PYZ, "rpc"], env={**os.environ, **home(tmp_path)}, timeout=60,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"duet-rpc: this Python is too old: {old.parts[-3]}")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("start", [PYZ, TOP / "duet_rpc" / "__main__.py"], ids=["pyz", "package"])
def test_on_windows_it_says_that_it_cannot_run(start: Path) -> None:
    code = f"import runpy, sys; sys.platform = 'win32'; runpy.run_path({str(start)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "duet-rpc: Windows is not supported. Run it in WSL, with an Emacs in WSL.\n"
    )


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:16] + bytes(path.stat().st_size - 16))


def garble_and_keep_the_time(path: Path) -> None:
    before = path.stat()
    garble(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def put_a_file_in_its_place(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


T = TypeVar("T")


def of_all(cases: Sequence[T], python: str) -> Sequence[T]:
    """Return all cases for the Python of the tests, and a few for others: Python is the same."""
    return cases if python == sys.executable else cases[::5]


DAMAGES: list[tuple[str, Callable[[Path], object]]] = [
    ("site-packages/duet_rpc/__pycache__/cli.*.pyc", cut),
    ("site-packages/duet_rpc/__pycache__/cli.*.pyc", garble),
    ("site-packages/duet_rpc/__pycache__/cli.*.pyc", garble_and_keep_the_time),
    ("site-packages/duet_rpc/methods/__pycache__/signature.*.pyc", cut),
    ("site-packages/duet_rpc/cli.py", cut),
    ("site-packages/duet_rpc/cli.py", Path.unlink),
    ("site-packages/loguru", shutil.rmtree),
    ("site-packages/duet_rpc/methods/__pycache__", shutil.rmtree),
    ("site-packages/duet_rpc", put_a_file_in_its_place),
    ("site-packages", shutil.rmtree),
    ("manifest", cut),
    ("manifest", Path.unlink),
]


def test_a_damaged_cache_is_healed_by_the_next_start(python: str, tmp_path: Path) -> None:
    env = home(tmp_path)
    version(python, env)
    (build,) = tmp_path.glob("home/.cache/duet-rpc/*-*")
    whole = contents(build)
    for pattern, damage in of_all(DAMAGES, python):
        (path,) = build.glob(pattern)
        damage(path)
        assert contents(build) != whole
        assert version(python, env) == VERSION, (pattern, damage)
        assert contents(build) == whole, (pattern, damage)
        assert builds(tmp_path) == [build.name]  # here, and nothing left beside it


def restart_the_machine(build: Path) -> None:
    """Let a build look as if it was unpacked, or last checked, before the machine was started."""
    manifest = build / "manifest"
    first, rest = manifest.read_text().split("\n", 1)
    manifest.write_text(f"{first[: first.rindex(' ')]} another-start\n{rest}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the start has no name there")
def test_the_next_start_heals_a_damaged_cache(python: str, tmp_path: Path) -> None:
    """It may keep the size and the time of a file, but not what is in it."""
    env = home(tmp_path)
    version(python, env)
    (build,) = tmp_path.glob("home/.cache/duet-rpc/*-*")
    whole = contents(build)
    files = ("methods/__pycache__/loading.*.pyc", "terminal/call.py", "mcp/tools.py")
    for pattern in of_all(files, python):
        (path,) = build.glob(f"site-packages/duet_rpc/{pattern}")
        garble_and_keep_the_time(path)
        restart_the_machine(build)
        assert version(python, env) == VERSION
        assert contents(build) == whole, pattern
        assert builds(tmp_path) == [build.name]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the start has no name there")
def test_what_is_whole_is_not_unpacked_again_after_a_restart(python: str, tmp_path: Path) -> None:
    env = home(tmp_path)
    version(python, env)
    (build,) = tmp_path.glob("home/.cache/duet-rpc/*-*")
    before, inode = (build / "manifest").read_text(), build.stat().st_ino
    restart_the_machine(build)
    assert version(python, env) == VERSION
    assert (build / "manifest").read_text() == before
    assert build.stat().st_ino == inode
    assert [each.name for each in build.iterdir() if "manifest" in each.name] == ["manifest"]


def contents(build: Path) -> dict[str, object]:
    """Map each file to what is in it; for compiled code, which varies, to whether it is whole."""
    found: dict[str, object] = {}
    manifest = build / "manifest"
    lines = manifest.read_bytes().splitlines()[1:] if manifest.exists() else []
    for path in build.rglob("*"):
        name, data = str(path.relative_to(build)), b"" if path.is_dir() else path.read_bytes()
        if path.suffix == ".pyc":
            found[name] = f"{len(data)} {name}".encode() in lines and any(data[16:])
        elif path != manifest:
            found[name] = data
    return found


def test_a_daemon_runs_on_while_its_damaged_build_is_replaced(tmp_path: Path) -> None:
    env = home(tmp_path)
    with daemon([sys.executable, PYZ, "rpc"], env) as client:
        assert client.call("version") == VERSION
        (manifest,) = tmp_path.glob("home/.cache/duet-rpc/*/manifest")
        manifest.unlink()
        assert version(sys.executable, env) == VERSION
        assert manifest.exists()
        assert client.call("rpc.discover")["openrpc"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a disk of some kilobytes, or change the size of the one that is mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(kilobytes: int) -> Path:
        options = f"size={kilobytes}k,mode=700" + (",remount" if folder.is_mount() else "")
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"can't mount a small disk: {done.stderr.strip()}")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_at_the_first_start_is_no_harm(
    python: str, tmp_path: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(100)
    elsewhere = {**home(tmp_path), "HOME": str(disk)}
    nowhere = {**elsewhere, "TMPDIR": str(disk)}
    for kilobytes in of_all((1400, 300, 1000, 1800, 2200), python):
        small_disk(kilobytes)
        assert version(python, nowhere) == VERSION  # from memory
        assert version(python, elsewhere) == VERSION
        for packages in disk.rglob("site-packages"):  # a build is here in full, or not at all
            build = packages.parent
            lines = (build / "manifest").read_text().splitlines()[1:]
            for size, name in (line.split(" ", 1) for line in lines):
                assert (build / name).stat().st_size == int(size), name
    assert len(builds(tmp_path / "tmp")) == 1
    small_disk(20_000)
    assert version(python, elsewhere) == VERSION
    assert len(builds(disk / ".cache")) == 1


def test_a_cache_named_by_a_relative_path_is_not_trusted(tmp_path: Path) -> None:
    env = {**home(tmp_path), "XDG_CACHE_HOME": "cache"}
    assert version(sys.executable, env) == VERSION
    assert not (tmp_path / "cache").exists()
    assert builds(tmp_path / "home" / ".cache" / "duet-rpc")


def test_old_builds_do_not_pile_up_but_what_runs_stays(tmp_path: Path) -> None:
    root = tmp_path / "home" / ".cache" / "duet-rpc"
    root.mkdir(parents=True, mode=0o700)
    for number in range(8):
        (root / f"old{number}" / "site-packages").mkdir(parents=True)
        os.utime(root / f"old{number}", (number, number))
    running = os.open(root / "old0" / "site-packages", os.O_RDONLY)
    fcntl.flock(running, fcntl.LOCK_SH)
    (root / "envs").mkdir()  # of workers: not a build
    os.utime(root / "envs", (0, 0))
    version(sys.executable, home(tmp_path))
    os.close(running)
    assert (root / "envs").is_dir()
    left = [name for name in builds(root) if name.startswith("old")]
    assert left == ["old0", "old6", "old7"]


def test_pythons_that_take_turns_keep_their_builds(tmp_path: Path) -> None:
    root = tmp_path / "home" / ".cache" / "duet-rpc"
    version(sys.executable, home(tmp_path))
    (mine,) = builds(root)
    for number in range(5):
        (root / f"{mine.partition('-')[0]}-other{number}" / "site-packages").mkdir(parents=True)
    shutil.rmtree(root / mine)
    version(sys.executable, home(tmp_path))
    assert len(builds(root)) == 6


def test_a_running_daemon_holds_on_to_its_build(tmp_path: Path) -> None:
    with daemon([sys.executable, PYZ, "rpc"], home(tmp_path)) as client:
        client.call("version")
        (packages,) = tmp_path.glob("home/.cache/duet-rpc/*/site-packages")
        directory = os.open(packages, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        client.finish()
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(directory)


def test_a_daemon_whose_files_are_deleted_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = {**home(tmp_path), "DUET_RPC_LOG": str(log)}
    version(sys.executable, env)
    log.unlink()
    with daemon([sys.executable, PYZ, "rpc"], env) as client:
        assert client.call("version") == VERSION
        wait_for_loguru(client.process.pid)  # now all is loaded that the first reply did without
        shutil.rmtree(tmp_path / "home" / ".cache")
        for row in ROWS:
            expected = [*row.expected, Answer("good")]
            check([Row(row.name, b"", expected)], client.exchange(row.data + GOOD, len(expected)))
        assert len(client.call("describeMethods")) == 6
        assert client.call("rpc.discover")["openrpc"]
        code, _, _ = client.finish()
    assert code == 0
    assert "internal error" not in log.read_text()


# The file itself.


def test_the_archive_is_pure_python_beside_the_elisp() -> None:
    with zipfile.ZipFile(PYZ) as archive:
        assert b"stub" not in archive.read("__main__.py")
        with zipfile.ZipFile(archive.open("site-packages/duet-rpc.zip")) as packages:
            names = [*archive.namelist(), *packages.namelist()]
    tools = [name for name in names if name.startswith("site-packages/duet_rpc/pyz")]
    made = [name for name in names if name.endswith((".so", ".pyd", ".dylib", ".pyc"))]
    assert made == ["__main__.pyc", "_launcher.pyc"]  # which have their sources beside them
    assert "site-packages/tomli/__init__.py" in names
    assert tools == []
    side = PYZ.with_name("duet-rpc.el")
    assert side.read_bytes() == (TOP / "elisp" / "duet-rpc.el").read_bytes()


@pytest.mark.parametrize("name", ["__main__.py", "_launcher.py"])
def test_its_launcher_is_compiled_for_the_python_that_built_it(name: str) -> None:
    with zipfile.ZipFile(PYZ) as archive:
        compiled, source = archive.read(f"{name}c"), archive.read(name)
    assert compiled[:4] == importlib.util.MAGIC_NUMBER
    assert compiled[4:16] == b"\1" + bytes(11)  # it is never compared with the source
    code = compile(source, name, "exec", dont_inherit=True)
    assert marshal.loads(compiled[16:]) == code  # noqa: S302 - our own


def test_a_damaged_download_says_so(python: str, tmp_path: Path) -> None:
    data = bytearray(PYZ.read_bytes())
    middle = data.index(b"site-packages/duet-rpc.zip") + 100_000
    data[middle : middle + 1000] = bytes(1000)
    copy = tmp_path / "copy.pyz"
    copy.write_bytes(data)
    done = subprocess.run(
        [python, copy, "version"], env={**os.environ, **home(tmp_path)}, timeout=60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{copy} is damaged" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_it_runs_by_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "a folder with spaces" / "duet"
    copy.parent.mkdir()
    shutil.copy(PYZ, copy)
    link = tmp_path / "link"
    link.symlink_to(copy)
    for program in (copy, link):
        _, replies, _ = run(request(1), [program, "rpc"], home(tmp_path))
        assert replies[0]["result"] == VERSION


def test_it_installs_with_pip_as_a_command(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    copy = tmp_path / "source"
    shutil.copytree(TOP, copy, ignore=shutil.ignore_patterns(".*", "build", "dist", "tests"))
    subprocess.run(
        [tmp_path / "venv/bin/pip", "install", "--quiet", copy],
        capture_output=True,
        check=True,
        timeout=300,
    )
    _, replies, _ = run(request(1), [tmp_path / "venv/bin/duet-rpc", "rpc"], {"PYTHONPATH": ""})
    assert replies[0]["result"] == VERSION


# Times that are promises.


def test_thirty_seconds_are_thirty_seconds(tmp_path: Path) -> None:
    with daemon([sys.executable, PYZ, "rpc"], home(tmp_path)) as client:
        client.call("version")  # it has started, so it reads what follows at once
        client.send(b"Content-Length: 100\r\n\r\n{")
        assert client.silent_for(28.5)
        client.send(b" ")
        time.sleep(4.0)  # thirty seconds are over, though a byte has come meanwhile
        assert client.call("version") == VERSION
        _, _, log = client.finish()
    assert log.count("a frame was not complete after 30 s: discarded") == 1


@pytest.mark.parametrize("way", ["end of input", "shutdown"])
def test_the_process_is_gone_0_1_s_after_its_reply(way: str, tmp_path: Path) -> None:
    times = []
    for _ in range(5):
        with daemon([sys.executable, PYZ, "rpc"], home(tmp_path)) as client:
            client.call("version")
            start = time.monotonic()
            if way == "shutdown":
                client.call("shutdown")
                start = time.monotonic()
            else:
                client.close_input()
            assert client.wait()[0] == 0
            times.append(time.monotonic() - start)
    assert min(times) < 0.1
