"""The first start of the .pyz unpacks it: once, where only its user can write."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.pyz.support import VERSION, builds, home, plant, version
from tests.support import PYZ, Client, request, run


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
