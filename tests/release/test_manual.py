"""The Info manual and the man page: complete, and built without a warning."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from duet_rpc.command_line import COMMANDS, OPTIONS, VARIABLES
from tests.support import TOP

EMACSEN = os.environ.get("EMACSEN", "emacs").split()


def need(program: str, package: str) -> str:
    """Return the path of a program; skip if it can't be had, but not in CI on Debian."""
    path = shutil.which(program)
    if path is None:
        message = f"{program} is not installed; on Debian: apt-get install {package}"
        if os.environ.get("CI") == "true" and shutil.which("apt-get"):
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both, made by what `make info` runs; a warning is a failure."""
    need("makeinfo", "texinfo")
    folder = tmp_path_factory.mktemp("manual")
    command = [sys.executable, str(TOP / "packaging" / "manual.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.fixture
def texinfo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOP / "packaging"))
    return importlib.import_module("texinfo")


def test_info_has_every_command_option_and_variable(made: Path) -> None:
    text = (made / "duet-rpc.info").read_text()
    nodes = re.findall(r"Node: (.*?),  ", text)
    assert [each.name for each in COMMANDS if f"duet-rpc {each.name}" not in nodes] == []
    words = [*(each.name for each in OPTIONS), *VARIABLES]
    assert [word for word in words if not re.search(f"‘(-h, )?{word}", text)] == []
    assert {"Introduction", "Glossary", "Type hints", "Index"} <= set(nodes)


def test_info_has_every_command_of_emacs(made: Path) -> None:
    library = (TOP / "elisp" / "duet-rpc.el").read_text()
    form = r"^;;;###autoload\n\((?:defun|define-minor-mode) (duet-rpc-[a-z-]+)"
    names = re.findall(form, library, re.M)
    assert len(names) > 10
    text = (made / "duet-rpc.info").read_text()
    assert [name for name in names if name not in text] == []


def test_every_page_is_a_chapter(made: Path) -> None:
    text = (made / "duet-rpc.info").read_text()
    for page in (TOP / "docs").glob("*.md"):
        title = page.read_text().splitlines()[0].lstrip("# ")
        assert re.search(rf"^\d+ {re.escape(title)}$", text, re.M), page


@pytest.mark.parametrize("emacs", EMACSEN)
def test_emacs_reads_it(emacs: str, made: Path) -> None:
    if shutil.which(emacs) is None:
        pytest.skip(f"{emacs} is not installed")
    file = str(made / "duet-rpc.info")
    look = f"""(progn (require 'info) (info "({file})duet-rpc call")
      (princ Info-current-node) (Info-index "M-x duet-rpc-doctor") (princ Info-current-node))"""
    command = [emacs, "-Q", "--batch", "--eval", look]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("duet-rpc call")
    assert len(done.stdout) > len("duet-rpc call")


def test_man_page_has_every_command_option_and_variable(made: Path) -> None:
    need("man", "man-db")
    page = str(made / "duet-rpc.1")
    env = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["man", "--warnings=w", "-l", page] if sys.platform == "linux" else ["man", page],
        capture_output=True, text=True, env=env, check=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    text = re.sub(r".\x08", "", done.stdout)
    words = [*(each.name for each in (*COMMANDS, *OPTIONS)), *VARIABLES, "~/.config", "130"]
    assert [word for word in words if not re.search(rf"^ +{re.escape(word)}", text, re.M)] == [
        "--help"  # which stands behind its short form
    ]
    assert re.search("^ +-h, --help", text, re.M)


def test_mandoc_finds_nothing_in_the_man_page(made: Path) -> None:
    mandoc = need("mandoc", "mandoc")
    done = subprocess.run(
        [mandoc, "-T", "lint", made / "duet-rpc.1"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


def convert(texinfo: Any, text: str) -> str:
    result: str = texinfo.Manual(
        {"a.md": text, "docs/b.md": "# B\n\n## Here"}, "https://x"
    ).texinfo()
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a @ {b} `c--d` e--f", "a @@ @{b@} @code{c--d} e-@w{}-f"),
        ("*a* **b**", "@emph{a} @strong{b}"),
        ("```sh\n$ {x}\n```", "@example\n$ @{x@}\n@end example"),
        ("1. a\n2. b", "@enumerate\n@item\na\n@item\nb\n@end enumerate"),
        ("[B](docs/b.md#here)", "B (@pxref{Here})"),
        ("[docs/b.md](docs/b.md)", "@ref{B}"),
        ("[x](examples/)", "@uref{https://x/blob/main/examples, x}"),
        ("<!-- a note -->", "@chapter A"),
    ],
)
def test_markdown_becomes_texinfo(texinfo: Any, text: str, expected: str) -> None:
    made = convert(texinfo, f"# A\n\n{text}\n")
    assert re.sub(r"\n+", "\n", expected) in re.sub(r"\n+", "\n", made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# A\n\n<div>x</div>", "the manual cannot have html_block"),
        ("# A\n\nx <b>y</b>", "the manual cannot have html_inline"),
        ("# A\n\n[x](docs/b.md#there)", "docs/b.md#there, which has no such section"),
        ("text", "does not begin with a heading"),
    ],
)
def test_what_the_manual_cannot_have_is_refused(texinfo: Any, text: str, message: str) -> None:
    with pytest.raises(texinfo.MarkdownError, match=re.escape(message)):
        convert(texinfo, text)


def test_without_makeinfo_it_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, TOP / "packaging" / "manual.py", tmp_path],
        capture_output=True, text=True, env={**os.environ, "PATH": ""}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "apt-get install texinfo" in done.stderr
    assert len(done.stderr.splitlines()) == 1
