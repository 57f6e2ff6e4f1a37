"""A file that is endless, unreadable, hostile or no file at all costs its own methods only."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.author import NOT_FOUND, ONE, rpc
from tests.machine import wait_for_loguru
from tests.method_files import write
from tests.support import notification, request, wait_for_file


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
