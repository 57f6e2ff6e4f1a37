"""Environments: made once from real packages, kept, shared, pruned; and when that fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duet_rpc.environments.pythons import Python, probe
from tests.documents import blocks_of, commands_in, is_shown
from tests.support import TOP, daemon, wait_until
from tests.terminal import environment, invoke

START = [sys.executable, str(TOP / "tests" / "with_environment.py")]
DAYS = 24 * 60 * 60  # seconds

PATIENCE = 180
"""Seconds for a program that may have to install something, on a busy machine."""

SHOW = "import humanize, sys; print(humanize.intcomma(12345), sys.prefix)"

NOWHERE = "http://127.0.0.1:9/simple"
OFFLINE = {
    "PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "1", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1",
    "PIP_CONFIG_FILE": os.devnull, "UV_DEFAULT_INDEX": NOWHERE, "UV_HTTP_RETRIES": "0",
}  # fmt: skip


def uv_folder() -> Path:
    """Return the folder that uv was installed into, with the packages for development."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    return Path(uv).parent


def with_tool(tool: str, tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    """Put uv on PATH, or take it away."""
    folders = env["PATH"].split(os.pathsep)
    rest = [each for each in folders if not os.path.exists(os.path.join(each, "uv"))]
    if tool == "uv":
        only = tmp_path / "uv"
        only.mkdir(exist_ok=True)
        if not (only / "uv").exists():
            (only / "uv").symlink_to(uv_folder() / "uv")
        rest.insert(0, str(only))
    return {**env, "PATH": os.pathsep.join(rest)}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment without uv, in which nothing was made yet."""
    home = tmp_path / "home"
    home.mkdir()
    return with_tool("pip", tmp_path, environment(home))


@pytest.fixture
def uv_env(
    tmp_path: Path, env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return an environment with uv, whose downloads all tests share."""
    shared = tmp_path_factory.getbasetemp().parent / "uv-cache"
    return with_tool("uv", tmp_path, {**env, "UV_CACHE_DIR": str(shared)})


@pytest.fixture(params=["uv", "pip"])
def made(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    env: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """Return an environment in which humanize has been installed, once for all tests."""
    cache = tmp_path_factory.getbasetemp().parent / f"made-with-{request.param}"
    env = with_tool(request.param, tmp_path, {**env, "XDG_CACHE_HOME": str(cache)})
    code, _, err = start(env, dependencies=["humanize"])
    assert code == 0, err
    return env


def start(env: dict[str, str], *words: str, **asked: object) -> tuple[int, str, str]:
    """Run a program under the Python that was asked for; return exit code, stdout and stderr."""
    done = subprocess.run(
        [*START, json.dumps(asked), *(words or ("-c", "pass"))],
        env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def begin(env: dict[str, str], *words: str, **asked: object) -> subprocess.Popen[str]:
    """Begin to do the same."""
    return subprocess.Popen(
        [*START, json.dumps(asked), *(words or ("-c", "pass"))],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def root(env: dict[str, str]) -> Path:
    """Return the folder of the environments."""
    cache = env.get("XDG_CACHE_HOME") or f"{env['HOME']}/.cache"
    return Path(cache, "duet-rpc", "envs")


def folders(env: dict[str, str]) -> list[Path]:
    """Return the folders of the environments."""
    return sorted(each for each in root(env).glob("*") if re.fullmatch("[0-9a-f]+", each.name))


def listed(env: dict[str, str]) -> list[dict[str, object]]:
    """Return what `duet-rpc env --json` lists."""
    code, out, err = invoke(["env", "--json"], env)
    assert (code, err) == (0, "")
    environments: list[dict[str, object]] = json.loads(out)["environments"]
    return environments


# What is made.


def test_nothing_is_made_where_our_own_python_will_do(env: dict[str, str]) -> None:
    for asked in ({}, {"requires": ">=3.9"}, {"requires": "~=3.9", "python": sys.executable}):
        show = "import sys; print(sys.executable)"
        assert start(env, "-c", show, **asked) == (0, f"{sys.executable}\n", "")
    assert not root(env).exists()


def test_packages_are_installed_once_and_kept(made: dict[str, str]) -> None:
    (folder,) = folders(made)
    expected = f"12,345 {folder}/venv\n"
    assert start(made, "-c", SHOW, dependencies=["Humanize "]) == (0, expected, "")
    for private in (root(made).parent, root(made), folder):
        assert private.stat().st_mode & 0o077 == 0


def test_an_existing_environment_needs_no_network_and_no_installer(made: dict[str, str]) -> None:
    offline = {**made, **OFFLINE, "PATH": ""}
    code, out, err = start(offline, "-c", SHOW, dependencies=["humanize"])
    assert (code, out.split()[0], err) == (0, "12,345", "")


def test_an_existing_environment_imports_little_to_be_found(made: dict[str, str]) -> None:
    code = (
        "import sys\n"
        "from duet_rpc.environments.ensure import ensure\n"
        "from duet_rpc.environments.requirements import Requirements\n"
        "ensure(Requirements(None, ('humanize',)), None, print)\n"
        "print(*sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=made, capture_output=True, text=True, check=True)
    slow = {"subprocess", "packaging", "tomllib", "shutil", "dataclasses", "inspect", "selectors"}
    assert not slow & set(done.stdout.split())


def test_it_has_duet_rpc_and_nothing_else_of_ours(made: dict[str, str]) -> None:
    methods = Path(made["HOME"], ".config", "duet-rpc", "methods")
    methods.mkdir(parents=True)
    (methods / "words.py").write_text(
        "import importlib.util, multiprocessing, sys\n"
        "from duet_rpc import method\n"
        "import humanize\n"
        "def count(number): return humanize.intcomma(number)\n"
        "@method\n"
        "def look() -> list:\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        (counted,) = pool.map(count, [12345])\n"
        "    names = ('pytest', 'packaging', 'loguru')\n"
        "    return [counted, [n for n in names if importlib.util.find_spec(n)], sys.prefix]\n"
    )
    (folder,) = folders(made)
    made = {**made, "PYTHONPATH": ""}
    asked = json.dumps({"dependencies": ["humanize"]})
    with daemon([*START, asked, "rpc"], made) as client:
        assert client.call("look") == ["12,345", ["loguru"], f"{folder}/venv"]


def test_another_python_is_found_on_the_path(env: dict[str, str], tmp_path: Path) -> None:
    other = another_python()
    folder = tmp_path / "bin"
    folder.mkdir()
    name = f"python3.{other.version[1]}"
    (folder / name).symlink_to(other.path)
    env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
    show = "import sys; print(*sys.version_info[:2])"
    requires = f"==3.{other.version[1]}.*"
    code, out, err = start(env, "-c", show, requires=requires, python=None)
    assert (code, out) == (0, f"3 {other.version[1]}\n"), err
    assert "report: making an environment\n" in err
    assert start(env, "-c", show, requires=requires)[1:] == (out, "")
    # One that is named needs no environment of its own.
    show = "import sys; print(sys.base_prefix == sys.prefix)"
    assert start(env, "-c", show, requires=requires, python=name) == (0, "True\n", "")
    code, _, err = start(env, requires=f"!=3.{other.version[1]}.*", python=name)
    assert code == 1
    assert "does not allow 3." in err


def another_python() -> Python:
    """Return a Python from 3.11 on of another minor version than ours."""
    for path in Path(os.environ["PYENV_ROOT"]).glob("versions/3.1*/bin/python"):
        found = probe(str(path))
        if found and found.version >= (3, 11) and found.version[:2] != sys.version_info[:2]:
            return found
    pytest.skip("no other Python here")


# More than one process.


def test_two_processes_at_once_make_it_once(uv_env: dict[str, str]) -> None:
    both = [begin(uv_env, "-c", SHOW, dependencies=["humanize"]) for _ in range(2)]
    results = [each.communicate(timeout=PATIENCE) for each in both]
    assert [each.returncode for each in both] == [0, 0], results
    assert len({out for out, _ in results}) == 1
    reports = "".join(err for _, err in results)
    assert reports.count("report: making an environment with humanize\n") == 1
    assert len(folders(uv_env)) == 1


@pytest.fixture
def slow_uv(uv_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Let uv wait before it installs packages, until the file `go` is there."""
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "uv").write_text(
        f"#!/bin/sh\n[ $1 = venv ] || {{ : > {tmp_path}/waits-$$\n"
        f"while ! [ -e {tmp_path}/go ]; do sleep 0.05; done; }}\n"
        f'exec {tmp_path}/uv/uv "$@"\n'
    )
    (folder / "uv").chmod(0o755)
    return {**uv_env, "PATH": f"{folder}{os.pathsep}{uv_env['PATH']}"}


def waits(tmp_path: Path, count: int = 1) -> None:
    wait_until(lambda: len(list(tmp_path.glob("waits-*"))) == count, "uv waits")


def test_the_second_process_says_that_it_waits(slow_uv: dict[str, str], tmp_path: Path) -> None:
    first = begin(slow_uv, "-c", SHOW, dependencies=["humanize"])
    waits(tmp_path)
    second = begin(slow_uv, "-c", SHOW, dependencies=["humanize"])
    assert second.stderr is not None
    assert second.stderr.readline() == (
        "report: waiting for another process, which makes the same environment\n"
    )
    (entry,) = listed(slow_uv)
    assert (entry["complete"], entry["inUse"]) == (False, True)
    _, out, _ = invoke(["env", "--prune"], slow_uv)
    assert out == "0 environments removed, 0.0 MB freed\n"
    (tmp_path / "go").touch()
    out, err = first.communicate(timeout=PATIENCE)
    assert second.communicate(timeout=PATIENCE) == (out, "")
    assert out.startswith("12,345"), err


def test_killed_in_the_middle_the_next_one_makes_it(
    slow_uv: dict[str, str], tmp_path: Path
) -> None:
    first = begin(slow_uv, dependencies=["humanize"])
    waits(tmp_path)
    first.kill()
    first.communicate()
    # Its installer is still running, and nobody interferes with that.
    second = begin(slow_uv, "-c", SHOW, dependencies=["humanize"])
    assert second.stderr is not None
    assert "waiting for another process" in second.stderr.readline()
    (tmp_path / "go").touch()
    out, err = second.communicate(timeout=PATIENCE)
    assert (second.returncode, out.split()[:1]) == (0, ["12,345"]), err
    assert "report: making an environment with humanize\n" in err
    assert len(folders(slow_uv)) == 1


def test_killed_with_its_installer_the_next_one_makes_it(
    slow_uv: dict[str, str], tmp_path: Path
) -> None:
    first = begin(slow_uv, dependencies=["humanize"])
    waits(tmp_path)
    first.kill()
    first.communicate()
    (waiting,) = tmp_path.glob("waits-*")
    os.kill(int(waiting.name.split("-")[1]), signal.SIGKILL)
    (entry,) = listed(slow_uv)
    assert entry["complete"] is False
    (tmp_path / "go").touch()
    code, out, err = start(slow_uv, "-c", SHOW, dependencies=["humanize"])
    assert (code, out.split()[:1]) == (0, ["12,345"]), err
    assert "waiting" not in err


def test_interrupted_it_leaves_nothing(slow_uv: dict[str, str], tmp_path: Path) -> None:
    first = begin(slow_uv, dependencies=["humanize"])
    waits(tmp_path)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=PATIENCE)
    assert folders(slow_uv) == []


# When it fails.


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_package_that_does_not_exist(
    tool: str, uv_env: dict[str, str], env: dict[str, str]
) -> None:
    env = uv_env if tool == "uv" else env
    name = "duet-rpc-no-such-package"
    code, _, err = start(env, dependencies=["humanize", name])
    assert code == 1
    head = (
        f"failed: an environment with humanize, {name} could not be made: {tool} failed with exit"
    )
    assert head in err
    assert f"{name} was not found" in err or f"No matching distribution found for {name}" in err
    by_hand = err.splitlines()[-1].partition("Try it by hand: ")[2]
    assert "&&" in by_hand
    assert by_hand.endswith(f" humanize {name}")
    assert folders(env) == []


def test_versions_that_contradict_one_another(uv_env: dict[str, str]) -> None:
    code, _, err = start(uv_env, dependencies=["humanize>=4", "humanize<4"])
    assert code == 1
    assert "humanize>=4" in err
    assert "unsatisfiable" in err


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_without_a_network_it_says_so(
    tool: str, uv_env: dict[str, str], env: dict[str, str]
) -> None:
    env = {**(uv_env if tool == "uv" else env), **OFFLINE}
    env["UV_CACHE_DIR"] = env["HOME"] + "/uv"
    code, _, err = start(env, dependencies=["humanize"])
    assert code == 1
    assert f"could not be made: {tool} could not connect to the network" in err


def test_without_uv_a_missing_python_lists_the_available_ones(env: dict[str, str]) -> None:
    code, _, err = start({**env, "PATH": ""}, requires=">=3.99", dependencies=["humanize"])
    assert code == 1
    version = ".".join(map(str, sys.version_info[:3]))
    assert f"no Python found for requires-python = '>=3.99'. Found: {version} (" in err
    assert "install uv" in err
    code, _, err = start(env, python="python3.99")
    assert err == (
        "failed: the Python python3.99 was not found on PATH. Install it, or name another one\n"
    )


def test_what_cannot_be_understood_is_named(env: dict[str, str]) -> None:
    code, _, err = start(env, dependencies=["humanize", "two words"])
    assert code == 1
    assert err.startswith("failed: the dependency 'two words' cannot be understood: ")
    code, _, err = start(env, requires="3.10 or later", dependencies=["humanize"])
    assert code == 1
    assert "requires-python is not a range of versions: '3.10 or later'" in err
    assert folders(env) == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a disk, or change how it is mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        options = f"mode=700,{options}" + (",remount" if folder.is_mount() else "")
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"can't mount a disk: {done.stderr.strip()}")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_full_or_read_only(
    uv_env: dict[str, str], disk: Callable[[str], Path]
) -> None:
    env = {**uv_env, "XDG_CACHE_HOME": str(disk("size=300k"))}
    code, _, err = start(env, dependencies=["humanize"])
    assert code == 1
    assert "could not be made: the disk is full" in err
    assert folders(env) == []
    disk("size=100m")
    code, out, err = start(env, "-c", SHOW, dependencies=["humanize"])
    assert code == 0, err
    disk("ro")
    assert start(env, "-c", SHOW, dependencies=["humanize"]) == (0, out, "")
    code, _, err = start(env, dependencies=["tabulate"])
    assert code == 1
    assert "cannot be written to: Read-only file system. Set XDG_CACHE_HOME" in err


def test_a_folder_that_others_can_write_to_is_not_used(env: dict[str, str]) -> None:
    root(env).mkdir(parents=True)
    root(env).chmod(0o777)
    code, _, err = start(env, dependencies=["humanize"])
    assert code == 1
    assert f"other users can write to {root(env)}" in err


def test_one_whose_python_is_gone_is_made_again(uv_env: dict[str, str]) -> None:
    start(uv_env, dependencies=["humanize"])
    (folder,) = folders(uv_env)
    (folder / "venv" / "bin" / "python").unlink()
    (entry,) = listed(uv_env)
    assert entry["complete"] is False
    code, out, err = start(uv_env, "-c", SHOW, dependencies=["humanize"])
    assert (code, out.split()[0]) == (0, "12,345"), err


# Listing and pruning.


def test_they_are_listed_with_who_uses_them(uv_env: dict[str, str]) -> None:
    assert invoke(["env"], uv_env) == (0, "no environments in ~/.cache/duet-rpc/envs\n", "")
    file = Path(uv_env["HOME"], "words.py")
    file.touch()
    asked = {"dependencies": ["humanize"], "requires": ">=3.9", "user": str(file)}
    start(uv_env, **{**asked, "user": "/gone/since.py"})
    with daemon([*START, json.dumps(asked), "rpc"], uv_env) as client:
        client.call("version")
        (entry,) = listed(uv_env)
        (folder,) = folders(uv_env)
        assert entry.pop("bytes")
        assert abs(int(str(entry.pop("lastUsed"))) - time.time()) < PATIENCE
        assert entry == {
            "folder": str(folder),
            "complete": True,
            "dependencies": ["humanize"],
            "requiresPython": ">=3.9",
            "python": str(folder / "venv" / "bin" / "python"),
            "version": ".".join(map(str, sys.version_info[:3])),
            "madeWith": "uv",
            "inUse": True,
            "usedBy": [str(file)],
        }
        code, out, _ = invoke(["env"], uv_env)
        assert code == 0
        assert out.startswith(f"humanize\n  Python {entry['version']}, ")
        (page,) = [each for each in blocks_of(TOP / "docs" / "packages.md") if "$ " in each.code]
        ((_, shown),) = commands_in(page)
        shown = re.sub("(?<=/envs/).*", "…", shown).replace("`duet-rpc", "`python -m duet_rpc")
        assert is_shown(out.strip(), shown, numbers_vary=True)
        client.finish()
    (entry,) = listed(uv_env)
    assert entry["inUse"] is False


def test_what_is_unused_is_pruned_and_what_is_used_stays(uv_env: dict[str, str]) -> None:
    long_ago = time.time() - 31 * DAYS

    def age() -> None:
        for mark in root(uv_env).glob("*/environment.json"):
            os.utime(mark, (long_ago, long_ago))

    for name in ("humanize", "tabulate"):
        start(uv_env, dependencies=[name])
    left = root(uv_env) / "0123456789abcdef"
    (left / "venv").mkdir(parents=True)  # of a process that was killed
    asked = json.dumps({"dependencies": ["tabulate"]})
    with daemon([*START, asked, "rpc"], uv_env) as client:
        client.call("version")
        age()
        code, out, err = invoke(["env", "--prune"], uv_env)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0] == "removed ~/.cache/duet-rpc/envs/0123456789abcdef: incomplete, 0.0 MB"
        assert "unused for 31 days" in lines[1]
        assert lines[2].startswith("2 environments removed, ")
        (kept,) = listed(uv_env)
        assert kept["dependencies"] == ["tabulate"]
        client.finish()
    # Whoever makes another environment prunes as well.
    start(uv_env, dependencies=["tabulate"])  # used today
    start(uv_env, dependencies=["humanize"])
    assert len(listed(uv_env)) == 2
    age()
    start(uv_env, dependencies=["six"])
    assert [each["dependencies"] for each in listed(uv_env)] == [["six"]]
    assert invoke(["env", "--prune"], uv_env)[1] == "0 environments removed, 0.0 MB freed\n"
