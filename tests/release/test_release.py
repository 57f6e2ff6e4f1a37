"""A release: all of its files, the same bytes each time, and one version number."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from duet_rpc import __version__
from tests.release.test_manual import need
from tests.support import PYZ, TOP

FILES = {
    "SHA256SUMS",
    "duet-rpc.1",
    "duet-rpc.cdx.json",
    "duet-rpc.el",
    "duet-rpc.info",
    "duet-rpc.pyz",
    f"duet_rpc-{__version__}-py3-none-any.whl",
    f"duet_rpc-{__version__}.tar.gz",
}
BUILD = "import sys, pathlib, release; release.build(pathlib.Path(sys.argv[1]))"


def build(target: Path, umask: int, **more: str) -> Path:
    """Build a release, in an environment that could make a difference."""
    env = {**os.environ, "PYTHONPATH": f"{TOP / 'packaging'}:{TOP}", **more}
    old = os.umask(umask)
    try:
        command = [sys.executable, "-c", BUILD, str(target)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a release, built once for all workers of pytest-xdist."""
    if not (TOP / ".git").exists():
        pytest.skip("a release is built from a clone, and this is none")
    need("makeinfo", "texinfo")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "release.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target = folder / "release"
        return target if target.exists() else build(target, 0o022)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_two_builds_of_one_commit_are_the_same_bytes(made: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a longer path"
    elsewhere.mkdir()
    again = build(tmp_path / "dist", 0o077, TZ="Asia/Tokyo", TMPDIR=str(elsewhere), LC_ALL="C")
    first, second = contents(made), contents(again)
    assert set(first) == set(second) == FILES
    assert [name for name in first if first[name] != second[name]] == []
    assert first["duet-rpc.pyz"] == PYZ.read_bytes(), "which make pyz has built, from a clone"


def test_the_checksums_are_those_of_every_other_file(made: Path) -> None:
    lines = (made / "SHA256SUMS").read_text().splitlines()
    # What M-x duet-rpc-install reads: 64 hexadecimal digits, two spaces, the name.
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+", line) for line in lines)
    assert {line[66:] for line in lines} == FILES - {"SHA256SUMS"}
    program = "sha256sum" if shutil.which("sha256sum") else "gsha256sum"
    done = subprocess.run([need(program, "coreutils"), "--check", "SHA256SUMS"], cwd=made)
    assert done.returncode == 0


def test_the_sbom_lists_what_is_in_the_pyz(made: Path) -> None:
    document: dict[str, Any] = json.loads((made / "duet-rpc.cdx.json").read_text())
    listed = {each["name"]: each for each in document["components"]}
    with zipfile.ZipFile(made / "duet-rpc.pyz") as outer:
        with zipfile.ZipFile(outer.open("site-packages/duet-rpc.zip")) as inner:
            infos = {name.split("/")[1] for name in inner.namelist() if ".dist-info/" in name}
        assert "_bootstrap/LICENSE" in outer.namelist()
    found = dict(info.removesuffix(".dist-info").rsplit("-", 1) for info in infos)
    found = {name.replace("_", "-"): version for name, version in found.items()}
    assert {name: each["version"] for name, each in listed.items() if name != "shiv"} == found
    assert document["metadata"]["component"]["version"] == __version__
    sums = (made / "SHA256SUMS").read_text()
    assert document["metadata"]["component"]["hashes"][0]["content"] + "  duet-rpc.pyz" in sums


def test_the_source_distribution_has_tests_and_manual(made: Path) -> None:
    with tarfile.open(made / f"duet_rpc-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"elisp/duet-rpc.el", "tests/conftest.py", "docs/design.md", "packaging/build.py"}
    assert wanted | {"Makefile", "LICENSE", "CHANGELOG.md"} <= names
    assert [name for name in names if "node_modules" in name or name.endswith(".pyc")] == []


def test_twine_accepts_the_packages(made: Path) -> None:
    twine = TOP / "build" / "release-tools" / "bin" / "twine"
    if not twine.exists():
        pytest.skip("make build/release-tools/ready installs twine; make release does so, too")
    packages = [str(path) for path in made.iterdir() if path.suffix in (".whl", ".gz")]
    done = subprocess.run([twine, "check", "--strict", *packages], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_wheel_with_another_hash_is_refused(tmp_path: Path) -> None:
    shutil.copytree(TOP / "packaging", tmp_path / "packaging")
    shutil.copytree(TOP / "duet_rpc", tmp_path / "duet_rpc")
    pins = tmp_path / "packaging" / "bundled.txt"
    pins.write_text(re.sub(r"sha256:\w{4}", "sha256:0000", pins.read_text()))
    command = [sys.executable, str(tmp_path / "packaging" / "build.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


# The version number.


def set_version(new: str, top: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, top / "packaging" / "version.py", new],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in (
        "duet_rpc/__init__.py",
        "elisp/duet-rpc.el",
        "CHANGELOG.md",
        "packaging/version.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(TOP / name, tmp_path / name)
    return tmp_path


def test_a_new_version_is_set_in_one_step(copy: Path) -> None:
    done = set_version("12.3.4", copy)
    assert done.returncode == 0, done.stderr
    assert '__version__ = "12.3.4"\n' in (copy / "duet_rpc/__init__.py").read_text()
    assert ";; Version: 12.3.4\n" in (copy / "elisp/duet-rpc.el").read_text()
    log = (copy / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[Unreleased\]\n\n## 12\.3\.4 - \d{4}-\d\d-\d\d\n\n###", log, re.M)
    assert f"## {__version__}" in log


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3rc1", "01.2.3"])
def test_what_is_not_a_version_changes_nothing(copy: Path, version: str) -> None:
    before = (copy / "duet_rpc/__init__.py").read_text()
    done = set_version(version, copy)
    assert done.returncode == 1
    assert "make version NEW=1.2.3" in done.stderr
    assert (copy / "duet_rpc/__init__.py").read_text() == before


def test_a_version_that_cannot_be_set_everywhere_is_set_nowhere(copy: Path) -> None:
    (copy / "CHANGELOG.md").write_text("# Changelog\n")
    done = set_version("12.3.4", copy)
    assert done.returncode == 1
    assert "CHANGELOG.md has 0 lines" in done.stderr
    assert "12.3.4" not in (copy / "duet_rpc/__init__.py").read_text()
