"""The author's day: write, save, run, fail, fix, with a daemon that is never restarted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.machine import wait_for_loguru
from tests.process.test_methods import SIX, env_for, write
from tests.support import (
    PYZ,
    SOURCE,
    TRIES,
    Client,
    daemon,
    notification,
    request,
    wait_for_file,
    wait_until,
)

ONE = "from duet_rpc import method\n@method\ndef {}() -> int: return {}\n"
NOT_FOUND = -32601


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the user's methods belong; nobody has made it yet."""
    return tmp_path / "home/.config/duet-rpc/methods"


@contextmanager
def rpc(tmp_path: Path, *flags: str, **options: Any) -> Iterator[Author]:
    """Run a daemon in the home folder of a user."""
    (tmp_path / "home").mkdir(exist_ok=True)
    environ = {**env_for(tmp_path), **options.pop("env", {})}
    program = options.pop("program", SOURCE)
    with daemon([*program, "rpc", *flags], environ, **options) as client:
        yield Author(client)


class Author:
    """A client that also keeps what the daemon says unasked."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.said: list[str] = []
        self.finish = client.finish

    def reply(self) -> dict[str, Any]:
        """Return the next reply."""
        while True:
            message: dict[str, Any] = json.loads(self.client.receive_raw())
            if message.get("method") != "client/say":
                return message
            self.said.append(message["params"]["text"])

    def ask(self, method: str, params: object = None, id: int = 1) -> dict[str, Any]:
        """Make a call and return the whole reply."""
        self.client.send(request(id, method, params))
        return self.reply()

    def call(self, method: str, params: object = None) -> Any:
        """Make a call and return its result."""
        reply = self.ask(method, params)
        assert "result" in reply, reply
        return reply["result"]

    def names(self) -> list[str]:
        """List the methods that are not built in."""
        names = [each["name"] for each in self.call("listMethods")]
        assert names[:6] == SIX
        return names[6:]

    def code(self, method: str) -> int:
        """Return the code of the error that a call ends in."""
        code: int = self.ask(method)["error"]["code"]
        return code


# The first minute.


def test_the_next_call_finds_the_first_file_of_all(tmp_path: Path, folder: Path) -> None:
    with rpc(tmp_path) as author:
        assert author.names() == []
        wait_for_loguru(author.client.process.pid)  # all that a daemon does unasked is done
        assert author.code("f") == NOT_FOUND
        write(folder, ONE.format("f", 1), "a.py")
        assert author.call("f") == 1
        assert author.names() == ["reloadMethods", "f"]


def test_the_next_call_or_list_sees_every_change_of_files(tmp_path: Path, folder: Path) -> None:
    with rpc(tmp_path) as author:
        a = write(folder, ONE.format("f", 1), "a.py")
        assert author.call("f") == 1
        write(folder, ONE.format("g", 1), "b.py")
        assert author.names() == ["reloadMethods", "f", "g"]
        a.write_text(ONE.format("f", 22))
        assert author.call("f") == 22
        a.write_text(ONE.format("h", 3))
        assert (author.code("f"), author.call("h")) == (NOT_FOUND, 3)
        a.rename(folder / "z.py")
        assert author.call("h") == 3
        assert author.names() == ["reloadMethods", "g", "h"]
        (folder / "b.py").unlink()
        assert author.code("g") == NOT_FOUND
        shutil.rmtree(folder)
        assert author.names() == []
        assert author.code("h") == NOT_FOUND


def test_a_change_with_the_same_time_and_size_is_seen(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", 0), "a.py")
    with rpc(tmp_path) as author:
        for number in range(1, 100):
            path.write_text(ONE.format("f", number % 10))
            assert author.call("f") == number % 10


def test_what_lies_beside_a_file_is_watched_too(tmp_path: Path, folder: Path) -> None:
    helper = write(folder, "VALUE = 1\n", "lib/_helper.py")
    write(folder, "", "lib/__init__.py")
    between = write(folder, "from lib import _helper\nFACTOR = 1\n", "_between.py")
    text = "import _between\n" + ONE.format("f", "_between._helper.VALUE * _between.FACTOR")
    write(folder, text, "a.py")
    write(folder, text.replace("f()", "g()"), "b.py")
    with rpc(tmp_path) as author:
        assert (author.call("f"), author.call("g")) == (1, 1)
        helper.write_text("VALUE = 21\n")
        assert (author.call("f"), author.call("g")) == (21, 21)
        between.write_text("from lib import _helper\nFACTOR = 2\n")
        assert (author.call("g"), author.call("f")) == (42, 42)


def test_a_file_keeps_its_memory_when_another_one_changes(tmp_path: Path, folder: Path) -> None:
    counter = "import itertools\nC = itertools.count()\n" + ONE.format("count", "next(C)")
    write(folder, counter, "a.py")
    other = write(folder, ONE.format("f", 1), "b.py")
    with rpc(tmp_path) as author:
        assert [author.call("count"), author.call("count")] == [0, 1]
        other.write_text(ONE.format("f", 2))
        assert (author.call("f"), author.call("count")) == (2, 2)


def test_a_module_of_an_installed_package_is_watched_too(tmp_path: Path) -> None:
    site = tmp_path / "site"
    write(site, "from pack import inner\n" + ONE.format("f", "inner.VALUE"), "pack/methods.py")
    write(site, "", "pack/__init__.py")
    inner = write(site, "VALUE = 1\n", "pack/inner.py")
    write(site, "[duet_rpc.methods]\nx = pack.methods\n", "p-1.dist-info/entry_points.txt")
    write(site, "Metadata-Version: 2.1\nName: p\nVersion: 1\n", "p-1.dist-info/METADATA")
    env = {"PYTHONPATH": f"{Path(__file__).parents[2]}{os.pathsep}{site}"}
    with rpc(tmp_path, env=env) as author:
        assert author.call("f") == 1
        inner.write_text("VALUE = 2\n")
        assert author.call("f") == 2
        inner.write_text("VALUE = (\n")
        assert author.call("f") == 2
        inner.write_text("VALUE = 3\n")
        assert author.call("f") == 3


def test_any_file_can_be_added_to_a_running_daemon(tmp_path: Path) -> None:
    path = write(tmp_path, ONE.format("f", 1), "elsewhere/a.py")
    with rpc(tmp_path) as author:
        assert author.call("loadMethods", [str(path)]) == {"methods": ["f"], "problems": []}
        assert author.call("f") == 1
        path.write_text(ONE.format("f", 2))
        assert author.call("f") == 2
        for wrong in ("a.py", "", 5, "/a\0b"):
            assert author.ask("loadMethods", [wrong])["error"]["code"] == -32602
        lost = author.call("loadMethods", [str(tmp_path / "no.py")])
        assert lost["problems"] == ["no.py: can't be read: No such file or directory"]


# A broken save.


def test_a_broken_save_keeps_what_worked_and_says_so_once(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", 1), "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        path.write_text(ONE.format("f", 2) + "oops(\n")
        assert [author.call("f") for _ in range(3)] == [1, 1, 1]
        (said,) = author.said
        assert said.startswith("a.py:4: SyntaxError: ")
        assert said.endswith("; the methods that it had are kept")
        path.write_text(ONE.format("f", 3))
        assert author.call("f") == 3
        path.write_text(ONE.format("f", 4) + "1 / 0\n")
        assert author.call("f") == 3
        assert author.said[1:] == [
            "a.py:4: ZeroDivisionError: division by zero; the methods that it had are kept"
        ]
        log = author.finish()[2]
    assert log.count("a.py:4: SyntaxError") == 1
    assert 'File "' in log


def test_a_failure_of_an_earlier_version_names_the_problem(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", "1 / 0"), "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert "problem" not in author.ask("f")["error"]["data"]
        path.write_text(ONE.format("f", "1") + "oops(\n")
        data = author.ask("f")["error"]["data"]
        assert data["type"] == "ZeroDivisionError"
        assert data["problem"].startswith("a.py:4: SyntaxError: ")
        path.write_text(ONE.format("f", "0 / 0"))
        assert "problem" not in author.ask("f")["error"]["data"]


def test_a_broken_helper_keeps_what_worked_and_heals(tmp_path: Path, folder: Path) -> None:
    helper = write(folder, "VALUE = 1\n", "_helper.py")
    write(folder, ONE.format("f", "late()") + "def late():\n    import _helper\n"
          "    return _helper.VALUE\nimport _helper\n", "a.py")  # fmt: skip
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        helper.write_text("VALUE = (\n")
        assert [author.call("f"), author.call("f")] == [1, 1]
        assert len(author.said) == 1
        assert author.said[0].startswith("_helper.py:1: SyntaxError")
        helper.write_text("VALUE = 2\n")
        assert author.call("f") == 2


def test_a_helper_written_after_its_importer_is_found(tmp_path: Path, folder: Path) -> None:
    write(folder, "import _helper\n" + ONE.format("f", "_helper.VALUE"), "a.py")
    with rpc(tmp_path, "--debug") as author:
        reply = author.ask("f")
        assert reply["error"]["code"] == NOT_FOUND
        assert (
            "a.py:1 imports '_helper', which is not installed"
            in reply["error"]["data"]["problems"][0]
        )
        write(folder, "VALUE = 5\n", "_helper.py")
        assert author.call("f") == 5


def test_the_command_that_installs_a_missing_module_can_be_copied(
    tmp_path: Path, folder: Path
) -> None:
    path = write(folder, ONE.format("f", 1), "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        path.write_text("import new_package\n" + ONE.format("f", 2))
        assert author.call("f") == 1
        assert author.said == [
            "a.py:1 imports 'new_package', which is not installed; the methods that it had are "
            f"kept. Install it: {sys.executable} -m pip install new_package"
        ]


def test_a_package_installed_while_the_daemon_runs_is_found(tmp_path: Path, folder: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    write(folder, "import new_package\n" + ONE.format("f", "new_package.VALUE"), "a.py")
    env = {"PYTHONPATH": f"{Path(__file__).parents[2]}{os.pathsep}{site}"}
    with rpc(tmp_path, env=env) as author:
        assert author.code("f") == NOT_FOUND
        write(site, "VALUE = 7\n", "new_package.py")
        assert author.call("f") == 7


def test_a_reload_that_is_cancelled_loses_nothing(tmp_path: Path, folder: Path) -> None:
    for name in "abc":
        write(folder, ONE.format(name, 1), f"{name}.py")
    with rpc(tmp_path) as author:
        assert author.call("a") == 1
        mark = tmp_path / "begun"
        write(folder, f"import time\nopen({str(mark)!r}, 'w')\ntime.sleep(60)\n", "b.py")
        author.client.send(request(7, "reloadMethods"))
        wait_for_file(mark)  # and not longer: it does not count as endless yet
        author.client.send(notification("$/cancelRequest", {"id": 7}))
        assert author.reply()["error"]["code"] == -32800
        # What is deferred until it is idle does not try again.
        wait_for_loguru(author.client.process.pid)
        assert [author.call(name) for name in "abc"] == [1, 1, 1]


# Bad input.


def test_a_timeout_names_the_line_of_an_endless_import(tmp_path: Path, folder: Path) -> None:
    write(folder, ONE.format("good", 1), "good.py")
    mark = tmp_path / "begun"
    text = f"open({str(mark)!r}, 'w')\nwhile True:\n    pass\n"
    endless = write(folder, text, "endless.py")
    with rpc(tmp_path, "--debug") as author:
        author.client.send(request(1, "version"))
        assert author.reply()["id"] == 1
        wait_for_file(mark)  # it spins, although nobody has asked for anything
        time.sleep(0.6)  # more than a file that is merely slow would get
        author.client.send(request(2, "version") + notification("$/cancelRequest", {"id": 2}))
        assert author.reply()["error"]["code"] == -32800
        (said,) = author.said
        assert said in [
            f"endless.py:{line}: interrupted while it was being loaded" for line in (2, 3)
        ]
        assert author.call("good") == 1  # which does not need the endless one
        assert author.names() == ["reloadMethods", "good"]  # nor does a list
        endless.write_text(ONE.format("ended", 2))
        assert author.call("ended") == 2


def test_an_endless_import_ends_two_seconds_after_input_does(tmp_path: Path, folder: Path) -> None:
    mark = tmp_path / "begun"
    write(folder, f"open({str(mark)!r}, 'w')\nwhile True: pass\n", "endless.py")
    with rpc(tmp_path) as author:
        author.call("version")
        wait_for_file(mark)
        author.client.close_input()
        code, seconds = author.client.wait()
    assert (code, seconds < 2.5) == (0, True)


def test_two_files_with_the_same_method_are_both_named(tmp_path: Path, folder: Path) -> None:
    first = write(folder, ONE.format("f", 1), "a.py")
    write(folder, ONE.format("f", 2), "b.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        assert author.said == ["b.py:2: f is already the name of the method at a.py:2"]
        first.write_text(ONE.format("g", 1))
        assert author.call("f") == 2


def test_a_file_may_have_the_name_of_a_standard_module(tmp_path: Path, folder: Path) -> None:
    write(folder, "import json\n" + ONE.format("f", "len(json.dumps([1]))"), "json.py")
    write(folder, ONE.format("g", 2), "signal.py")
    write(folder, ONE.format("h", 2), "with spaces.py")
    with rpc(tmp_path) as author:
        assert [author.call(name) for name in "fgh"] == [3, 2, 2]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_named_until_it_is_readable(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", 1), "a.py")
    path.chmod(0)
    with rpc(tmp_path, "--debug") as author:
        assert author.code("f") == NOT_FOUND
        assert author.said == ["a.py: can't be read: Permission denied"]
        path.chmod(0o600)
        assert author.call("f") == 1


def test_a_link_to_itself_is_named_until_it_is_replaced(tmp_path: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    loop = folder / "a.py"
    loop.symlink_to(loop)
    with rpc(tmp_path, "--debug") as author:
        assert author.code("f") == NOT_FOUND
        assert author.said == ["a.py: can't be read: Too many levels of symbolic links"]
        loop.unlink()
        write(folder, ONE.format("f", 1), "a.py")
        assert author.call("f") == 1


def test_what_is_no_file_is_named_and_costs_nothing_else(tmp_path: Path, folder: Path) -> None:
    (folder / "folder.py").mkdir(parents=True)
    os.mkfifo(folder / "pipe.py")
    (folder / "dangling.py").symlink_to(tmp_path / "nowhere")
    write(folder, ONE.format("f", 1), "z.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        assert sorted(author.said) == [
            "dangling.py: can't be read: No such file or directory",
            "folder.py: can't be read: it is not a regular file",
            "pipe.py: can't be read: it is not a regular file",
        ]


def test_a_save_during_a_call_does_not_affect_that_call(tmp_path: Path, folder: Path) -> None:
    begun, saved = tmp_path / "begun", tmp_path / "saved"
    text = "import os, time\nfrom duet_rpc import method\n@method\ndef slow() -> int:\n"
    text += f"    open({str(begun)!r}, 'w')\n"
    text += f"    while not os.path.exists({str(saved)!r}): time.sleep(0.01)\n    return "
    path = write(folder, text + "1\n", "a.py")
    with rpc(tmp_path) as author:
        author.client.send(request(1, "slow"))
        wait_for_file(begun)
        path.write_text(text + "2\n")
        saved.touch()
        assert author.reply()["result"] == 1
        assert author.call("slow") == 2


def test_files_that_vanish_while_they_are_loaded_cost_no_call(tmp_path: Path, folder: Path) -> None:
    write(folder, ONE.format("stays", 1), "stays.py")
    come_and_go = (
        "import os, sys\n"
        "for number in range(5000):\n"
        f"    name = {str(folder)!r} + f'/gone_{{number % 7}}.py'\n"
        f"    open(name, 'w').write({ONE!r}.format('gone', number))\n"
        "    os.unlink(name)\n"
    )
    with rpc(tmp_path) as author, daemon([sys.executable, "-c", come_and_go]) as others:
        asked = 0
        while others.process.poll() is None or asked < 10:
            reply = author.ask("gone")  # which may be there, or not
            assert reply.get("error", {"code": NOT_FOUND})["code"] == NOT_FOUND
            assert author.call("stays") == 1
            asked += 1
        assert author.names() == ["reloadMethods", "stays"]
        assert author.code("gone") == NOT_FOUND
        assert author.finish()[0] == 0


@pytest.mark.parametrize("how", ["in place", "by renaming"])
def test_a_hundred_saves_a_second_cost_no_call(tmp_path: Path, folder: Path, how: str) -> None:
    path = write(folder, ONE.format("f", 0), "a.py")
    save = (
        "import os, sys, time\n"
        "number = 0\n"
        "while not os.path.exists(sys.argv[2]):\n"
        "    number += 1\n"
        f"    text = {ONE!r}.format('f', number)\n"
        f"    name = {str(path)!r}\n"
        "    if sys.argv[1] == 'in place':\n"
        "        open(name, 'w').write(text)\n"
        "    else:\n"
        "        open(name + '~', 'w').write(text)\n"
        "        os.replace(name + '~', name)\n"
        "    time.sleep(0.01)\n"
    )
    enough = tmp_path / "enough"
    with rpc(tmp_path) as author:
        seen = [author.call("f")]

        def seen_many() -> bool:
            seen.append(author.call("f"))
            return len(set(seen)) > 50

        with daemon([sys.executable, "-c", save, how, enough]) as saving:
            wait_until(seen_many, "most of what is saved is seen")
            enough.touch()
            saving.wait()
        seen.append(author.call("f"))
        assert seen == sorted(seen)
        assert path.read_text() == ONE.format("f", seen[-1])


HOSTILE = {
    "a function that wraps itself": "f.__wrapped__ = f\nmethod('odd')(f)\n",
    "an object that answers everything": (
        "class Any:\n    def __getattr__(self, name): return Any()\n"
        "    def __call__(self, *a, **k): return Any()\nmethod('odd')(Any())\n"
    ),
    "an object whose attributes raise": (
        "class Bad:\n    def __getattribute__(self, name): raise SystemExit\n"
        "    def __call__(self): pass\nmethod('odd')(Bad())\n"
    ),
    "a hint that ends the process": "@method\ndef odd(x: 'exit()'): pass\n",
    "a hint that never ends": (
        "import os\ndef spin():\n    open(os.environ['HOME'] + '/spins', 'w')\n"
        "    while True: pass\n@method\ndef odd(x: 'spin()'): pass\n"
    ),
    "a title that is none": "@method(title=object())\ndef odd(): pass\n",
    "a default that grows": ("@method\ndef odd(x: list = []): x.append(object()); return 1\n"),
    "a recursion limit without limit": "import sys\nsys.setrecursionlimit(2**31 - 1)\n",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_costs_its_own_methods_only(tmp_path: Path, folder: Path, kind: str) -> None:
    text = "from duet_rpc import method\n@method\ndef f() -> int: return 1\n"
    write(folder, text + HOSTILE[kind], "a.py")
    write(folder, ONE.format("g", 2), "b.py")
    with rpc(tmp_path) as author:
        author.call("version")
        if kind == "a hint that never ends":
            wait_for_file(tmp_path / "home" / "spins")  # although nobody has asked for it
            author.client.send(request(3, "odd"))
            time.sleep(0.8)  # more than a file that is merely slow would get
            author.client.send(notification("$/cancelRequest", {"id": 3}))
            assert author.reply()["error"]["code"] == -32800
        else:
            wait_for_loguru(author.client.process.pid)  # and then for the file
        assert author.call("g") == 2
        if kind != "a hint that never ends":
            author.ask("odd")
        for name in ("listMethods", "describeMethods", "rpc.discover"):
            author.call(name)
        assert author.finish()[0] == 0


RAISED = {
    "a text that raises": "def __str__(self): raise ValueError",
    "a text that is none": "def __str__(self): return 5",
    "a text that ends the process": "def __str__(self): raise SystemExit",
    "a text without end": "def __str__(self): return 'x' * 10_000_000",
    "a filename that raises": "filename = property(lambda self: 1 / 0)",
    "a traceback that raises": "__traceback__ = property(lambda self: 1 / 0)",
    "a cause that raises": "__cause__ = property(lambda self: 1 / 0)",
    "a class that raises": "__class__ = property(lambda self: 1 / 0)",
    "a repr that raises": "def __repr__(self): raise KeyboardInterrupt",
}


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["plain", "debug"])
@pytest.mark.parametrize("kind", RAISED)
def test_an_unreadable_exception_is_an_internal_error(
    tmp_path: Path, folder: Path, kind: str, debug: tuple[str, ...]
) -> None:
    text = f"class Odd(Exception):\n    {RAISED[kind]}\n"
    text += "from duet_rpc import method\n@method\ndef f(): raise Odd('x')\n"
    write(folder, text, "a.py")
    with rpc(tmp_path, *debug) as author:
        error = author.ask("f")["error"]
        assert (error["code"], error["message"]) == (-32603, "Internal error")
        if debug:
            assert error["data"]["type"] == "Odd"
        assert "version" in author.call("version")
        assert author.finish()[0] == 0


ODD_ERRORS = [
    "RpcError('x', 'y')", "RpcError(1.5, 'y')", "RpcError(True, 'y')", "RpcError(None, 'y')",
    "RpcError(-32001, 5)", "RpcError(-32001, 'y', object())", "RpcError(-32001, 'y', {1: {2}})",
    "RpcError(-32001, 'y', float('nan'))", "RpcError(-32001, '\\ud800')",
    "RpcError(10 ** 5000, 'y')",
]  # fmt: skip


@pytest.mark.parametrize("raised", ODD_ERRORS)
def test_an_error_with_odd_parts_is_still_an_error(
    tmp_path: Path, folder: Path, raised: str
) -> None:
    text = f"from duet_rpc import method, RpcError\n@method\ndef f(): raise {raised}\n"
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        error = author.ask("f")["error"]
        assert type(error["code"]) is int
        assert type(error["message"]) is str
        assert "version" in author.call("version")


# Errors that can be used.

FAILING = """
from duet_rpc import method
import json

def inner(text):
    return json.loads(text)

@method
def f(text: str):
    try:
        return inner(text)
    except ValueError as error:
        raise KeyError("a secret") from error
"""


def test_without_debug_an_exception_has_only_type_and_place(tmp_path: Path, folder: Path) -> None:
    write(folder, FAILING, "a.py")
    with rpc(tmp_path) as author:
        assert author.ask("f", ["{"])["error"] == {"code": -32603, "message": "Internal error"}
        log = author.finish()[2]
    assert "KeyError (a.py:13 in f)" in log
    assert "secret" not in log
    assert "Traceback" not in log


def test_the_author_is_told_type_text_place_and_traceback(tmp_path: Path, folder: Path) -> None:
    path = write(folder, FAILING, "a.py")
    with rpc(tmp_path, "--debug") as author:
        data = author.ask("f", ["{"])["error"]["data"]
        log = author.finish()[2]
    assert (data["type"], data["text"]) == ("KeyError", "'a secret'")
    assert data["place"] == f"{path}:13"
    trace = data["traceback"]
    assert trace.startswith("Traceback (most recent call last):")
    assert trace.endswith("KeyError: 'a secret'")
    assert f'File "{path}", line 6, in inner' in trace
    assert "The above exception was the direct cause of the following exception:" in trace
    assert "duet_rpc/server" not in trace
    assert "KeyError: 'a secret' (a.py:13 in f)" in log
    assert all(f"  {line}" in log.splitlines() for line in trace.splitlines() if line)


def test_the_place_is_the_deepest_line_of_the_user(tmp_path: Path, folder: Path) -> None:
    path = write(folder, FAILING.replace("except ValueError", "except OSError"), "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.ask("f", ["{"])["error"]["data"]["place"] == f"{path}:6"


def test_the_place_of_a_wrong_result_is_its_function(tmp_path: Path, folder: Path) -> None:
    path = write(
        folder, "from duet_rpc import method\n\n@method\ndef f() -> int:\n    return 'a'\n", "a.py"
    )
    with rpc(tmp_path, "--debug") as author:
        data = author.ask("f")["error"]["data"]
    assert data["text"] == "returned by a.py:3: expected integer, got string"
    assert data["place"] == f"{path}:3"


def test_an_mcp_client_is_never_told_more(tmp_path: Path, folder: Path) -> None:
    write(folder, FAILING, "a.py")
    write(folder, "oops(", "b.py")
    calls = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
         "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
        {"id": 2, "method": "tools/call", "params": {"name": "f", "arguments": {"text": "{"}}},
    ]  # fmt: skip
    with daemon([*SOURCE, "mcp", "--debug"], env_for(tmp_path), framing="lines") as client:
        for each in calls:
            client.send(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n")
            reply = client.receive_raw().decode()
            assert json.loads(reply)["id"] == each["id"]
        client.close_input()
        _, err = client.process.communicate(timeout=20)
    assert "secret" not in reply
    assert "a.py" not in reply
    assert b"KeyError: 'a secret'" in err


def test_breakpoint_says_how_to_debug_a_method_and_goes_on(tmp_path: Path, folder: Path) -> None:
    write(folder, ONE.format("f", "breakpoint() or 1"), "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        assert author.said == [
            "breakpoint() at a.py:3 is ignored in the daemon; to stop there, run "
            "`python -m duet_rpc call --pdb METHOD ...` in a terminal"
        ]


def test_breakpoint_names_the_program_with_its_full_path(tmp_path: Path, folder: Path) -> None:
    write(folder, ONE.format("f", "breakpoint() or 1"), "a.py")
    with rpc(tmp_path, "--debug", program=[sys.executable, str(PYZ)]) as author:
        assert author.call("f") == 1
        assert f"run `python3 {PYZ} call --pdb METHOD ...` in a" in author.said[0]


# Coming and going.

HOOKS = """
import os, sys, atexit
from duet_rpc import method, on_start, on_stop

def note(word):
    with open({path!r}, "a") as file:
        file.write(word + "\\n")

@on_start
def begin(): note("start {name}")

@on_stop
def end(): note("stop {name}")

atexit.register(note, "atexit {name}")

@method
def f() -> str: return "{name}"
"""


@pytest.mark.parametrize("end", ["eof", "SIGTERM", "shutdown"])
def test_on_start_runs_after_loading_and_on_stop_before_removal(
    tmp_path: Path, folder: Path, end: str
) -> None:
    notes = tmp_path / "notes"
    path = write(folder, HOOKS.format(path=str(notes), name="one"), "a.py")
    with rpc(tmp_path) as author:
        assert author.call("f") == "one"
        assert notes.read_text().split("\n") == ["start one", ""]
        path.write_text(HOOKS.format(path=str(notes), name="two"))
        assert author.call("f") == "two"
        if end == "eof":
            author.client.close_input()
        elif end == "SIGTERM":
            author.client.signal(signal.SIGTERM)
        else:
            author.call("shutdown")
        assert author.client.wait()[0] == 0
    assert notes.read_text().splitlines() == [
        "start one", "stop one", "start two", "stop two", "atexit two", "atexit one"
    ]  # fmt: skip


def test_hooks_that_fail_are_named_and_end_nothing(tmp_path: Path, folder: Path) -> None:
    text = "from duet_rpc import on_start, on_stop\n@on_start\ndef a(): exit()\n"
    write(folder, ONE.format("f", 1) + text + "@on_stop\ndef b(): 1 / 0\n", "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        assert author.said[0].startswith("a.py:6: SystemExit")
        author.client.close_input()
        _, log = author.client.process.communicate(timeout=20)
        assert author.client.process.returncode == 0
    assert b"a.py:8: ZeroDivisionError" in log


def test_on_stop_runs_after_a_cancelled_request(tmp_path: Path, folder: Path) -> None:
    begun, stopped = tmp_path / "begun", tmp_path / "stopped"
    text = "import time\nfrom duet_rpc import method, on_stop\n"
    text += f"@method\ndef f():\n    open({str(begun)!r}, 'w')\n"
    text += f"    time.sleep(60)\n@on_stop\ndef b(): open({str(stopped)!r}, 'w')\n"
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        author.client.send(request(1, "f"))
        wait_for_file(begun)
        author.client.send(notification("$/cancelRequest", {"id": 1}))
        assert author.reply()["error"]["code"] == -32800
        author.client.close_input()
        assert author.client.wait()[0] == 0
    assert stopped.exists()


def test_an_endless_on_stop_does_not_keep_the_daemon(tmp_path: Path, folder: Path) -> None:
    text = "from duet_rpc import on_stop\n@on_stop\ndef b():\n    while True: pass\n"
    write(folder, ONE.format("f", 1) + text, "a.py")
    with rpc(tmp_path) as author:
        assert author.call("f") == 1
        author.client.close_input()
        code, seconds = author.client.wait()
    assert (code, seconds < 2.5) == (0, True)


# What methods say.

TALKING = """
import logging, warnings, sys
from duet_rpc import method

@method
def f() -> None:
    print("printed", "here")
    print("begun", end="")
    logging.getLogger("mine").warning("logged %s", 1)
    logging.info("informed")
    warnings.warn("warned")
    try:
        1 / 0
    except ZeroDivisionError:
        logging.exception("failed")
"""


@pytest.mark.parametrize("setup", ["", "logging.basicConfig(level=logging.INFO)\n"])
@pytest.mark.parametrize("sink", ["stderr", "file"])
def test_prints_warnings_and_log_lines_of_methods_are_logged(
    tmp_path: Path, folder: Path, sink: str, setup: str
) -> None:
    write(folder, TALKING + setup, "a.py")
    file = tmp_path / "log"
    env = {"DUET_RPC_LOG": str(file) if sink == "file" else ""}
    with rpc(tmp_path, "--debug", env=env) as author:
        author.call("f")
        log = author.finish()[2]
    lines = (file.read_text() if sink == "file" else log).splitlines()
    stamped = [line[30:] for line in lines]
    assert stamped.count("INFO  method=f id=1 printed here") == 1
    assert stamped.count("INFO  method=f id=1 begun") == 1
    assert stamped.count("WARN  mine: logged 1") == 1
    assert stamped.count("INFO  root: informed") == 1
    assert stamped.count("WARN  UserWarning: warned (a.py:11)") == 1
    assert stamped.count("ERROR root: failed: ZeroDivisionError (a.py:13 in f)") == 1
    assert "  ZeroDivisionError: division by zero" in lines


def test_what_a_method_prints_is_shown_at_any_level(tmp_path: Path, folder: Path) -> None:
    write(folder, TALKING, "a.py")
    with rpc(tmp_path, "--log-level", "error") as author:
        author.call("f")
        log = author.finish()[2]
    assert "printed here" in log
    assert "logged" not in log


def test_loguru_in_a_method_keeps_its_level_and_its_traceback(tmp_path: Path, folder: Path) -> None:
    text = "from loguru import logger\nfrom duet_rpc import method\n@method\ndef f():\n"
    text += "    logger.debug('quiet')\n    logger.warning('loud')\n"
    text += "    try: 1 / 0\n    except ZeroDivisionError: logger.exception('failed')\n"
    write(folder, text, "a.py")
    for flags, expected in (((), False), (("--debug",), True)):
        with rpc(tmp_path, *flags) as author:
            author.call("f")
            log = author.finish()[2]
        assert "WARN  loud" in log
        assert "quiet" not in log
        assert "ERROR failed: ZeroDivisionError (a.py:7 in f)" in log
        assert ("division by zero" in log) is expected


def test_loggers_imported_inside_a_function_write_at_once(tmp_path: Path, folder: Path) -> None:
    text = "from duet_rpc import method\n@method\ndef f():\n    import logging\n"
    text += "    from loguru import logger\n    logging.warning('one')\n    logger.info('quiet')\n"
    text += "    secret = 0\n    try: 1 / secret\n"
    text += "    except ZeroDivisionError: logger.exception('two')\n"
    write(folder, text, "a.py")
    with rpc(tmp_path, "--log-level", "warn") as author:
        author.call("f")
        log = author.finish()[2]
    stamped = [line[30:] for line in log.splitlines()]
    assert stamped == ["WARN  root: one", "ERROR two: ZeroDivisionError (a.py:9 in f)"]


def test_a_finally_block_can_report_after_a_cancel(tmp_path: Path, folder: Path) -> None:
    mark = tmp_path / "begun"
    text = (
        "import time, logging\nfrom duet_rpc import method, Context\n@method\n"
        f"def f(ctx: Context):\n    try:\n        open({str(mark)!r}, 'w').close()\n"
        "        time.sleep(60)\n    finally:\n"
        "        ctx.log.warn('one')\n        ctx.progress(1, 2)\n        print('two')\n"
        "        time.sleep(0.3)\n        logging.warning('three')\n        ctx.log.warn('four')\n"
    )
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        author.call("version")
        author.client.send(request(5, "f"))
        wait_for_file(mark)
        author.client.send(notification("$/cancelRequest", {"id": 5}))
        assert author.reply()["error"]["code"] == -32800
        log = author.finish()[2]
    said = [log.find(word) for word in ("one", "two", "three", "four")]
    assert -1 not in said
    assert said == sorted(said)


def test_a_failure_after_a_cancel_is_explained_to_the_author(tmp_path: Path, folder: Path) -> None:
    mark = tmp_path / "runs"
    text = (
        "import time\nfrom duet_rpc import method\n@method\ndef f():\n    try:\n"
        f"        open({str(mark)!r}, 'x').close()\n        time.sleep(60)\n"
        "    finally:\n        {}['x']\n"
    )
    write(folder, text, "a.py")
    with rpc(tmp_path, "--debug") as author:
        author.client.send(request(5, "f"))
        wait_for_file(mark)
        author.client.send(notification("$/cancelRequest", {"id": 5}))
        data = author.reply()["error"]["data"]
    assert (data["type"], data["text"]) == ("KeyError", "'x'")
    assert data["place"] == f"{folder / 'a.py'}:9"


# Processes of its own.


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes_runs_functions_of_the_file(
    tmp_path: Path, folder: Path, way: str
) -> None:
    text = (
        "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "from duet_rpc import method\n"
        "def double(x): return 2 * x\n"
        "@method\ndef f() -> list:\n"
        f"    context = multiprocessing.get_context({way!r})\n"
        "    with ProcessPoolExecutor(2, mp_context=context) as pool:\n"
        "        return [*pool.map(double, [1, 2, 3])]\n"
    )
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        assert author.call("f") == [2, 4, 6]
        assert author.finish()[0] == 0


LEFT_OPEN = {
    "a pool by fork": "POOL = ProcessPoolExecutor(2, mp_context=context('fork'))\n",
    "a pool by spawn": "POOL = ProcessPoolExecutor(2, mp_context=context('spawn'))\n",
    "a fork": "",
}


def leave_open(kind: str) -> str:
    """Return a file whose method `f` leaves processes behind, and returns their ids."""
    text = (
        "import os, time\nfrom multiprocessing import get_context as context\n"
        "from concurrent.futures import ProcessPoolExecutor\nfrom duet_rpc import method\n"
        "def pid(_): time.sleep(0.2); return os.getpid()\n" + LEFT_OPEN[kind] +
        "@method\ndef f() -> list:\n"
    )  # fmt: skip
    if kind == "a fork":
        text += "    child = os.fork()\n    if not child:\n        time.sleep(60)\n"
        text += "    return [child]\n"
    else:
        text += "    return [*POOL.map(pid, [1, 2])]\n"
    return text


@pytest.mark.parametrize("kind", LEFT_OPEN)
def test_no_process_of_a_method_outlives_the_daemon(
    tmp_path: Path, folder: Path, kind: str
) -> None:
    write(folder, leave_open(kind), "a.py")
    with rpc(tmp_path) as author:
        children = author.call("f")
        author.client.close_input()
        assert author.client.process.stdout is not None
        assert author.client.process.stdout.read() == b""
        assert author.client.wait()[0] == 0
        wait_until(lambda: not any(map(is_alive, children)), "they are gone")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can")
@pytest.mark.parametrize("kind", ["a pool by fork", "a fork"])
def test_no_copy_of_a_daemon_that_is_killed_goes_on(
    tmp_path: Path, folder: Path, kind: str
) -> None:
    write(folder, leave_open(kind), "a.py")
    with rpc(tmp_path) as author:
        children = author.call("f")
        author.client.process.kill()
        author.client.process.wait()
        wait_until(lambda: not any(map(is_alive, children)), "they are gone")


@pytest.mark.parametrize("way", ["EOF", "SIGKILL"])
def test_a_program_that_a_method_has_started_may_stay(
    tmp_path: Path, folder: Path, way: str
) -> None:
    text = (
        "import os\nfrom duet_rpc import method\n@method\ndef f() -> int:\n    child = os.fork()\n"
        "    if not child: os.execlp('sleep', 'sleep', '60')\n    return child\n"
    )
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        child = author.call("f")
        wait_until(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes(), "it runs")
        try:
            author.client.process.kill() if way == "SIGKILL" else author.client.close_input()
            author.client.process.wait()
            time.sleep(0.2)  # for what must not happen there is no event
            assert is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


# The same on the other wires.

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


class ToolClient:
    """An MCP client that keeps the notifications that it gets."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.notified: list[str] = []
        self.ask("initialize", HELLO)

    def ask(self, method: str, params: object = None) -> dict[str, Any]:
        """Make a request and return the whole reply."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        self._client.send(json.dumps(body).encode() + b"\n")
        while True:
            message: dict[str, Any] = json.loads(self._client.receive_raw())
            if "id" in message:
                return message
            self.notified.append(message["method"])

    def tools(self) -> list[str]:
        """List the names of the tools."""
        return [each["name"] for each in self.ask("tools/list")["result"]["tools"]]

    def call(self, tool: str) -> str:
        """Call a tool and return its text."""
        reply = self.ask("tools/call", {"name": tool, "arguments": {}})
        if "error" in reply:
            return str(reply["error"]["message"])
        return str(reply["result"]["content"][0]["text"])


CHANGED = "notifications/tools/list_changed"


@pytest.mark.parametrize("flags", [(), ("--gateway",)], ids=["mcp", "mcp --gateway"])
def test_an_mcp_client_sees_files_come_change_break_and_go(
    tmp_path: Path, folder: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "home").mkdir()
    command = [*SOURCE, "mcp", *flags]
    with daemon(command, env_for(tmp_path), framing="lines") as process:
        client = ToolClient(process)
        assert client.tools() == []
        assert "Unknown tool" in client.call("f")
        path = write(folder, ONE.format("f", 1), "a.py")
        assert client.call("f") == "1"
        assert client.tools() == ["f"]
        path.write_text(ONE.format("f", 22) + ONE.format("g", 3))
        assert client.call("f") == "22"
        assert CHANGED in client.notified
        assert client.tools() == ["f", "g"]
        path.write_text("oops(\n")
        assert (client.call("f"), client.call("g")) == ("22", "3")
        path.unlink()
        assert "Unknown tool" in client.call("f")
        assert client.tools() == []


def test_a_daemon_behind_the_gateway_sees_changed_files(tmp_path: Path, folder: Path) -> None:
    command = json.dumps([*SOURCE, "rpc"])
    write(folder.parent, f"[backends.mine]\ncommand = {command}\n", "config.toml")
    with daemon([*SOURCE, "gateway"], env_for(tmp_path)) as client:

        def result_of(method: str) -> object:
            client.send(request(1, method))
            while True:
                message = json.loads(client.receive_raw())
                if "id" in message:  # else it says how the backend is
                    return message["result"] if "result" in message else message["error"]["code"]

        assert result_of("mine/f") == NOT_FOUND
        path = write(folder, ONE.format("f", 1), "a.py")
        assert result_of("mine/f") == 1
        path.write_text(ONE.format("f", 22))
        assert result_of("mine/f") == 22
        path.write_text("oops(\n")
        assert result_of("mine/f") == 22
        path.unlink()
        assert result_of("mine/f") == NOT_FOUND


def test_a_file_seen_while_it_is_saved_keeps_its_methods(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", 1), "a.py")
    with rpc(tmp_path) as client:
        assert client.call("f") == 1
        took = []
        for _ in range(TRIES):
            start = time.monotonic()
            path.write_text("")  # as editors do, before they write
            assert client.names() == ["reloadMethods"], "nobody has written for a while"
            took.append(time.monotonic() - start)
            path.write_text(ONE.format("f", 22))
            assert client.call("f") == 22
        assert min(took) > 0.1, "the time that somebody has for writing it"


def test_a_client_is_told_of_other_tools_once(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", 1), "a.py")
    with daemon([*SOURCE, "mcp"], env_for(tmp_path), framing="lines") as process:
        client = ToolClient(process)
        assert client.tools() == ["f"]
        path.write_text(ONE.format("f", 22))
        assert client.call("f") == "22"
        assert client.notified == [], "the list is the same"
        path.write_text(ONE.format("f", 333) + "@method\ndef g() -> int: return 1\n")
        assert [client.call("f"), client.call("f")] == ["333", "333"]
        assert client.notified == [CHANGED]
