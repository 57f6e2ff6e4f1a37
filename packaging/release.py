"""Build everything that a release consists of, and check it: `make release`.

All of it is built from a copy of the tracked files, and whatever could differ between two builds
of one commit (times, owners, modes, order) is fixed.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

from sbom import make_sbom

from build import write_archive
from duet_rpc import __version__

TOP = Path(__file__).resolve().parent.parent
TOOLS = TOP / "build" / "release-tools" / "bin"
RECIPE = TOP / "packaging" / "melpa-recipe"
SUMS = "SHA256SUMS"

PEP_517 = """
from setuptools import build_meta
build_meta.build_sdist("dist")
build_meta.build_wheel("dist")
"""

VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()))
"""

BUILD_WITH_MELPA = """
(progn
  (require 'package-build)
  (setq package-build--use-sandbox nil)
  (let ((default-directory (pop command-line-args-left)))
    (setq package-build-recipes-dir (expand-file-name "recipes/")
          package-build-working-dir (expand-file-name "working/")
          package-build-archive-dir (expand-file-name "archive/"))
    (make-directory package-build-archive-dir t)
    (package-build-archive "duet-rpc")))
"""


def main() -> None:
    """Build into dist/, in place of what is there, and check the result."""
    changed = git("status", "--porcelain", "--untracked-files=no")
    if changed:
        sys.exit(
            f"{changed}\nduet-rpc: a release is made of one commit; commit or stash these first"
        )
    fresh, dist = TOP / "build" / "release", TOP / "dist"
    shutil.rmtree(fresh, ignore_errors=True)
    build(fresh)
    check(fresh)
    shutil.rmtree(dist, ignore_errors=True)
    fresh.rename(dist)
    print(f"duet-rpc {__version__} is in dist/; RELEASING.md says how to publish it:")
    print((dist / SUMS).read_text(), end="")


def build(target: Path) -> None:
    """Build all files of a release into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        copy_tracked_files(source)
        dist = source / "dist"
        epoch = git("log", "-1", "--format=%ct")
        env = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONPATH": str(source)}
        python = [sys.executable, "-B"]  # no compiled files among the sources
        run([*python, "-c", PEP_517], source, env)
        run([*python, "packaging/build.py"], source, env)
        run([*python, "packaging/manual.py", "dist"], source, env)
        (sdist,) = dist.glob("*.tar.gz")
        (wheel,) = dist.glob("*.whl")
        rewrite_sdist(sdist, int(epoch))
        rewrite_wheel(wheel)
        sbom = make_sbom(__version__, sha256(dist / "duet-rpc.pyz"))
        (dist / "duet-rpc.cdx.json").write_text(sbom)
        sums = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(dist.iterdir()))
        (dist / SUMS).write_text(sums)
        shutil.copytree(dist, target)
    for path in target.iterdir():
        path.chmod(0o755 if path.suffix == ".pyz" else 0o644)


def copy_tracked_files(target: Path) -> None:
    """Copy the files that git knows, as they are now, each with one of the two modes of git."""
    for name in git("ls-files", "-z").split("\0"):
        path = TOP / name
        if name and path.is_file():
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            copy.chmod(0o755 if os.access(path, os.X_OK) else 0o644)


def rewrite_sdist(path: Path, epoch: int) -> None:
    """Write a source distribution again, with fixed times, owners, modes and order."""
    fresh = path.with_suffix(".new")
    with ExitStack() as stack:
        archive = stack.enter_context(tarfile.open(path))
        raw = stack.enter_context(fresh.open("wb"))
        packed = stack.enter_context(gzip.GzipFile("", "wb", mtime=epoch, fileobj=raw))
        target = stack.enter_context(tarfile.open(fileobj=packed, mode="w"))
        for info in sorted(archive, key=lambda each: each.name):
            info.mtime, info.pax_headers = epoch, {}
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            target.addfile(info, archive.extractfile(info))
    fresh.replace(path)


def rewrite_wheel(path: Path) -> None:
    """Write a wheel again, so that its bytes depend on names and contents alone."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with path.open("wb") as file:
        write_archive(file, files, zipfile.ZIP_DEFLATED)


def check(folder: Path) -> None:
    """Check what was built, with the tools of those who will take it."""
    answer = run([sys.executable, str(folder / "duet-rpc.pyz"), "version"], folder)
    if answer != f"{__version__}\n":
        sys.exit(f"duet-rpc: the .pyz is version {answer}not {__version__}")
    packages = [str(path) for pattern in ("*.whl", "*.tar.gz") for path in folder.glob(pattern)]
    run([str(TOOLS / "twine"), "check", "--strict", *packages], folder)
    run([str(TOOLS / "python"), "-c", VALIDATE, str(folder / "duet-rpc.cdx.json")], folder)
    package_build = os.environ.get("PACKAGE_BUILD")
    if package_build:
        check_recipe(package_build)
    else:
        print("the MELPA recipe was NOT checked: set PACKAGE_BUILD to a clone of package-build")


def check_recipe(package_build: str) -> None:
    """Build the package as MELPA would, from the last commit here."""
    with tempfile.TemporaryDirectory() as folder:
        recipes = Path(folder, "recipes")
        recipes.mkdir()
        # MELPA takes it from GitHub.
        remote = ':fetcher github :repo "duet-rpc/duet-rpc"'
        recipe = RECIPE.read_text()
        if remote not in recipe:
            sys.exit(f"duet-rpc: {RECIPE} does not have {remote}")
        # A clone has the commit that is checked out here as its only branch, and git can fetch
        # from it, which it can't from a worktree.
        clone = Path(folder, "clone")
        run(["git", "clone", "--quiet", "--bare", "--single-branch", str(TOP), str(clone)], TOP)
        here = f':fetcher git :url "file://{clone}"'
        (recipes / "duet-rpc").write_text(recipe.replace(remote, here))
        run(
            ["emacs", "-Q", "--batch", "-L", package_build, "--eval", BUILD_WITH_MELPA, folder],
            Path(folder),
        )
        (package,) = Path(folder, "archive").glob("duet-rpc-*.tar")
        with tarfile.open(package) as archive:
            names = [Path(name).name for name in archive.getnames()]
        if "duet-rpc.el" not in names:
            sys.exit(f"duet-rpc: {package.name} has no duet-rpc.el, only {', '.join(names)}")


def run(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a step and return what it printed; end here, with that, if it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nduet-rpc: this step failed: {' '.join(command)}")
    return done.stdout


def git(*words: str) -> str:
    """Return what git says about this repository."""
    return run(["git", *words], TOP).strip()


def sha256(path: Path) -> str:
    """Return the hash of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
