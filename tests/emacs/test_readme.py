"""What the README says to paste installs duet-rpc: the download, and package managers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.documents import Block, blocks_of, environment
from tests.emacs.support import ROOT
from tests.support import PYZ

REPOSITORY = "https://github.com/duet-rpc/duet-rpc"


def block_with(text: str) -> Block:
    (block,) = [each for each in blocks_of(ROOT / "README.md") if text in each.code]
    return block


def version_of(emacs: str) -> int:
    command = [emacs, "-Q", "--batch", "--eval", "(princ emacs-major-version)"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def test_the_paste_of_the_readme_installs_the_program(emacs: str, tmp_path: Path) -> None:
    """Take the files from dist/ instead of a release; then what follows in the README works."""
    paste = block_with("curl").code.replace(
        f"{REPOSITORY}/releases/latest/download", PYZ.parent.as_uri()
    )
    env = environment(tmp_path)
    (tmp_path / ".local" / "bin" / "duet-rpc").unlink()
    subprocess.run(["sh", "-c", paste], env=env, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["duet-rpc", "version"], env=env, capture_output=True, check=True)
    assert done.stdout
    init = tmp_path / ".emacs.d" / "init.el"
    init.write_text(block_with("(require 'duet-rpc)").code)
    call = '(princ (plist-get (duet-rpc-request "version") :version))'
    command = [emacs, "--batch", "-l", str(init), "--eval", call]
    found = subprocess.run(command, env=env, capture_output=True, check=True)
    assert found.stdout == done.stdout.strip()


@pytest.mark.parametrize(("form", "oldest"), [("(use-package", 30), ("(package-vc-install", 29)])
def test_a_package_manager_installs_it_as_the_readme_says(
    emacs: str, tmp_path: Path, form: str, oldest: int
) -> None:
    """Clone this repository instead of the one on GitHub; nothing of its tests is compiled."""
    if version_of(emacs) < oldest:
        pytest.skip(f"it needs Emacs {oldest}")
    init = tmp_path / "init.el"
    init.write_text(
        "(require 'package)\n(setq package-archives nil)\n(package-initialize)\n"
        + block_with(form).code
        + '(princ (commandp \'duet-rpc-new))(princ (locate-library "duet-rpc"))'
    )
    init.write_text(init.read_text().replace(REPOSITORY, str(ROOT)))
    done = subprocess.run(
        [emacs, "-Q", "--batch", "-l", str(init)],
        env=environment(tmp_path), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"t{tmp_path}")
    assert done.stdout.endswith("elisp/duet-rpc.elc")
    assert " failed" not in done.stderr, done.stderr
    assert "elpa/duet-rpc/tests" not in done.stderr, done.stderr
