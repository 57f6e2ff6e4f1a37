"""A damaged, full or deleted cache of the .pyz: the next start heals it, a daemon goes on."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile import GOOD, ROWS, Answer, Row, check
from tests.machine import wait_for_loguru
from tests.pyz.support import VERSION, builds, home, of_all, version
from tests.support import PYZ, daemon


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
