"""What is trusted and what is not: the log, its file, and the folder that code comes from."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest

from tests.hostile import typed
from tests.machine import wait_for_loguru
from tests.pyz.support import VERSION, home, plant, version
from tests.support import PYZ, SOURCE, TOP, daemon, frame, load, notification, request, run

SECRET = "sk-0123456789-secret"  # noqa: S105
LEAKY = TOP / "tests" / "leaky_methods.py"

EARLY_AND_LATE = pytest.mark.parametrize("with_loguru", [False, True], ids=["direct", "loguru"])

# Every place where a client can put something, except the method's name and the id, which
# the log shows by contract, cut and escaped.
PLANTED: dict[str, bytes] = {
    "params by name": request(1, "version", {"a": SECRET}),
    "params by position": request(1, "version", [SECRET]),
    "the name of a parameter": request(1, "version", {SECRET: 1}),
    "a value that is refused": request(1, "setLogLevel", {"level": SECRET}),
    "params of an unknown method": request(1, "nonsense", {"token": SECRET}),
    "params of an unknown notification": notification("nonsense", {"token": SECRET}),
    "params of no type": frame(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":"{SECRET}"}}'),
    "another member": frame(f'{{"jsonrpc":"2.0","id":1,"method":"m","{SECRET}":"{SECRET}"}}'),
    "the version": frame(f'{{"jsonrpc":"{SECRET}","id":1,"method":"m"}}'),
    "an id of no type": frame(f'{{"jsonrpc":"2.0","id":["{SECRET}"],"method":"m"}}'),
    "a method of no type": frame(f'{{"jsonrpc":"2.0","id":1,"method":["{SECRET}"]}}'),
    "a response": frame(f'{{"jsonrpc":"2.0","id":1,"result":"{SECRET}"}}'),
    "an error response": frame(f'{{"jsonrpc":"2.0","id":1,"error":{{"message":"{SECRET}"}}}}'),
    "a cancel": notification("$/cancelRequest", {"id": [SECRET]}),
    "a progress token": request(1, "careful", {"token": "x", "_meta": {"progressToken": SECRET}}),
    "an array": frame(f'["{SECRET}"]'),
    "a string": frame(f'"{SECRET}"'),
    "a broken body": frame(f'{{"id":1,"params":"{SECRET}"'),
    "a body that is not UTF-8": frame(f'{{"id":1,"p":"{SECRET}'.encode() + b'\xff"}'),
    "a body nested too deeply": frame(f'{{"p":"{SECRET}","a":' + "[" * 100_000),
    "a body of the wrong length": b"Content-Length: 9\r\n\r\n" + SECRET.encode(),
    "a length": f"Content-Length: {SECRET}\r\n\r\n".encode(),
    "a header's name": f"{SECRET}: 1\r\n\r\n".encode(),
    "a header's value": f"X-Token: {SECRET}\r\nContent-Length: 2\r\n\r\n{{}}".encode(),
    "a content type": frame("{}", f"Content-Length: {{}}\r\nContent-Type: {SECRET}\r\n\r\n"),
    "a charset": typed(f"application/vscode-jsonrpc; charset={SECRET}"),
    "a header that is too large": f"X: {SECRET}\r\n".encode() * 500,
    "an oversized body": b"Content-Length: 99999999\r\n\r\n" + SECRET.encode(),
    "garbage": f"\r\n{SECRET}\r\n".encode(),
    "what a method fails with": request(1, "repeat", {"token": SECRET}),
    "what Python says of it": request(1, "number", [SECRET]),
    "what is deep inside": request(1, "key", [{SECRET: [{"a": SECRET}]}]),
    "what a method refuses": request(1, "refuse", [SECRET]),
    "the name of a file": request(1, "open_it", [SECRET]),
    "what a method takes": request(1, "careful", [SECRET]),
    "a parameter of the wrong type": request(1, "careful", [[SECRET]]),
}  # fmt: skip


@EARLY_AND_LATE
def test_no_secret_reaches_the_log_at_its_loudest(with_loguru: bool) -> None:
    command = [*SOURCE, "rpc", "--log-level", "debug", "--methods", str(LEAKY)]
    with daemon(command, {"SOME_TOKEN": SECRET}) as client:
        client.call("version")
        if with_loguru:
            wait_for_loguru(client.process.pid)
        for name, data in PLANTED.items():
            client.send(data + b"\r\n\r\n")
            client.send(request(name))
            while load_any(client.receive_raw()).get("id") != name:
                pass
        client.send(b"Content-Length: 999\r\n\r\n" + SECRET.encode())  # cut off by the end
        code, _, log = client.finish()
    assert code == 0
    assert len(log.splitlines()) > len(PLANTED)
    assert SECRET not in log
    assert SECRET[:12] not in log


def load_any(body: bytes) -> dict[str, object]:
    """Read a reply or a notification."""
    return {} if b'"$/progress"' in body else load(body)


@pytest.mark.parametrize(("method", "params"), [("number", ["seven"]), ("key", [{"a": "b"}])])
def test_of_an_exception_the_log_has_type_and_place(method: str, params: list[object]) -> None:
    command = [*SOURCE, "rpc", "--methods", str(LEAKY)]
    _, _, log = run(request(1, method, params), command)
    kind = {"number": "ValueError", "key": "KeyError"}[method]
    line = (
        rf"ERROR method={method} id=1 Internal error: {kind} \(leaky_methods\.py:\d+ in {method}\)"
    )
    assert re.search(line + r"\n", log)


# The log's file.

NOT_ROOT = os.geteuid() != 0
SOMEBODY = 12345


@pytest.mark.skipif(NOT_ROOT, reason="only root can make what another user would plant")
@pytest.mark.parametrize("where", ["the file", "a folder", "behind a link of ours", "dangling"])
def test_a_link_that_another_user_planted_is_not_followed(tmp_path: Path, where: str) -> None:
    shared, target = tmp_path / "shared", tmp_path / "private" / "file"
    shared.mkdir()
    shared.chmod(0o1777)
    target.parent.mkdir()
    if where != "dangling":
        target.write_text("precious\n")
    link = shared / "link"
    link.symlink_to(target.parent if where == "a folder" else target)
    os.lchown(link, SOMEBODY, SOMEBODY)
    path = link / "file" if where == "a folder" else link
    if where == "behind a link of ours":
        path = tmp_path / "ours"
        path.symlink_to(link)
    code, _, log = run(b"", env={"DUET_RPC_LOG": str(path)})
    assert code == 0
    assert "WARN  DUET_RPC_LOG leads through a link of another user; logging to stderr" in log
    assert "log to stderr" in log
    assert where == "dangling" or target.read_text() == "precious\n"
    assert target.exists() == (where != "dangling")


@pytest.mark.skipif(NOT_ROOT, reason="only root can make what another user would plant")
@pytest.mark.parametrize("kind", ["a file", "a pipe"])
@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o755], ids=["sticky", "open", "the other's"])
def test_what_another_user_planted_is_not_written(tmp_path: Path, kind: str, mode: int) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    path = shared / "duet.log"
    if kind == "a pipe":
        os.mkfifo(path, 0o666)
    else:
        path.write_text("")
    os.chown(path, SOMEBODY, SOMEBODY)
    if mode == 0o755:
        os.chown(shared, SOMEBODY, SOMEBODY)
    shared.chmod(mode)
    listening = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    code, _, log = run(request(1, "nonsense"), env={"DUET_RPC_LOG": str(path)})
    assert code == 0
    assert log.count("WARN  DUET_RPC_LOG ") == 1
    assert "log to stderr" in log
    with contextlib.suppress(BlockingIOError):
        assert os.read(listening, 100) == b""
    os.close(listening)


@EARLY_AND_LATE
@pytest.mark.skipif(NOT_ROOT, reason="only root can make what another user would plant")
def test_what_another_user_plants_later_is_not_written(tmp_path: Path, with_loguru: bool) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    path = shared / "duet.log"
    with daemon(env={"DUET_RPC_LOG": str(path)}) as client:
        client.call("version")
        if with_loguru:
            wait_for_loguru(client.process.pid)
        path.unlink()
        path.write_text("")
        os.chown(path, SOMEBODY, SOMEBODY)
        client.send(request(2, "nonsense"))
        assert client.receive()["id"] == 2
        assert client.finish()[0] == 0
    assert path.read_text() == ""


def test_a_link_of_our_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o777)
    link = tmp_path / "shared" / "link"
    link.symlink_to(tmp_path / "file")
    run(b"", env={"DUET_RPC_LOG": str(link)})
    assert "started" in (tmp_path / "file").read_text()
    assert link.is_symlink()


def test_links_in_a_circle_are_no_place_for_a_log(tmp_path: Path) -> None:
    for name, target in (("a", "b"), ("b", "a")):
        (tmp_path / name).symlink_to(tmp_path / target)
    code, _, log = run(b"", env={"DUET_RPC_LOG": str(tmp_path / "a")})
    assert code == 0
    assert "DUET_RPC_LOG can't be written (Too many levels" in log  # and nobody is blamed
    assert "log to stderr" in log


@EARLY_AND_LATE
def test_a_link_in_place_of_the_log_is_not_followed(tmp_path: Path, with_loguru: bool) -> None:
    path, target = tmp_path / "duet.log", tmp_path / "precious"
    with daemon(env={"DUET_RPC_LOG": str(path)}) as client:
        client.call("version")
        if with_loguru:
            wait_for_loguru(client.process.pid)
        path.unlink()
        path.symlink_to(target)
        client.send(request(2, "nonsense"))
        assert client.receive()["id"] == 2
        code, _, _ = client.finish()
    assert code == 0
    assert not target.exists()


# The folder that code is loaded from.


@pytest.mark.parametrize("level", ["root", "build", "site-packages"])
@pytest.mark.parametrize("trouble", ["others can write", "a link", "another's"])
def test_code_is_loaded_from_nowhere_else(tmp_path: Path, level: str, trouble: str) -> None:
    env = home(tmp_path)
    version(sys.executable, env)
    (packages,) = tmp_path.glob("home/.cache/duet-rpc/*/site-packages")
    plant(packages.parent)
    folder = {"root": packages.parent.parent, "build": packages.parent}.get(level, packages)
    if trouble == "others can write":
        folder.chmod(0o777)
    elif trouble == "a link":
        shutil.move(folder, tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
        if level == "site-packages":  # ours, in a folder of ours: nobody else put it there
            pytest.skip("a link that only the user can have made")
    elif NOT_ROOT:
        pytest.skip("only root can give a folder away")
    else:
        os.chown(folder, SOMEBODY, SOMEBODY)
    assert version(sys.executable, env) == VERSION


def test_what_is_unpacked_can_be_reached_by_nobody_else(tmp_path: Path) -> None:
    run(request(1), [sys.executable, PYZ, "rpc"], home(tmp_path))
    (build,) = (path.parent for path in tmp_path.glob("home/.cache/duet-rpc/*/site-packages"))
    assert stat.S_IMODE(build.stat().st_mode) == 0o700
