"""The one file, as somebody has it who downloaded it."""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.hostile import GOOD, ROWS, Answer, Row, check
from tests.machine import wait_for_loguru, wait_until_computing
from tests.pyz.support import VERSION, builds, home, version
from tests.support import PYZ, TOP, daemon, frame, request, run

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
