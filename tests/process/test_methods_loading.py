"""Where methods come from, when they are loaded, and how what can't be loaded is named."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.method_files import WORDS, ask, env_for, write
from tests.support import SOURCE, TOP, daemon, request, run, wait_for_file


def test_methods_come_from_flags_config_folder_modules_and_entry_points(tmp_path: Path) -> None:
    def one(name: str) -> str:
        return f"from duet_rpc import method\n@method\ndef {name}() -> str: return {name!r}\n"

    flag = write(tmp_path, one("flag"), "flag.py")
    write(tmp_path / "home/.config/duet-rpc", one("folder_b") + one("folder_c"), "methods/b.py")
    write(tmp_path / "home/.config/duet-rpc", one("hidden"), "methods/_hidden.py")
    write(tmp_path / "home/.config/duet-rpc", one("from_config"), "own/config_file.py")
    write(
        tmp_path / "home/.config/duet-rpc",
        '[methods]\nload = ["own/config_file.py", "system"]\n',
        "config.toml",
    )
    site = tmp_path / "site"
    write(site, one("from_package"), "a_package/methods.py")
    write(site, "", "a_package/__init__.py")
    write(site, "[duet_rpc.methods]\nx = a_package.methods\n", "a-1.0.dist-info/entry_points.txt")
    write(site, "Metadata-Version: 2.1\nName: a\nVersion: 1.0\n", "a-1.0.dist-info/METADATA")
    write(site, one("from_module"), "a_module.py")
    env = {**env_for(tmp_path), "PYTHONPATH": f"{TOP}{os.pathsep}{site}"}
    command = [*SOURCE, "rpc", "--methods", str(flag), "--methods", "a_module"]
    _, replies, log = run(request(1, "listMethods"), command, env)
    names = [each["name"] for each in replies[0]["result"]]
    assert names[7:] == [
        "flag", "from_module", "from_config", "system.ping", "system.echo",
        "folder_b", "folder_c", "from_package",
    ]  # fmt: skip
    assert "ERROR" not in log


def test_a_file_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 42\n", "beside.py")
    text = (
        "from duet_rpc import method\nimport beside\n@method\ndef v() -> int: return beside.VALUE\n"
    )
    path = write(tmp_path, text)
    assert ask(tmp_path, request(1, "v"), "--methods", str(path))[0] == [42]


# What can't be loaded.

BROKEN = {
    "syntax": ("x = (\n", r"words.py:1: SyntaxError"),
    "import": (
        "import no_such_thing.below\n",
        "words.py:1 imports 'no_such_thing', which is not installed. "
        f"Install it: {sys.executable} -m pip install no_such_thing\n",
    ),
    "import of a part": (
        "import json.no_such_part\n",
        "words.py:1 imports 'json.no_such_part', which was not found\n",
    ),
    "import of a name": (
        "from json import no_such_name\n",
        "words.py:1: ImportError\n",
    ),
    "raise": ("\n\nraise ValueError('no')\n", "words.py:3: ValueError\n"),
    "file": (
        "open('/private/folder/notes.txt')\n",
        "words.py:1: FileNotFoundError\n",
    ),
    "exit": ("import sys\nsys.exit(3)\n", "words.py:2: SystemExit\n"),
    "hint": (
        "from duet_rpc import method\n@method\ndef f(x: complex): pass\n",
        "words.py:2: f: parameter x: the hint complex has no form in JSON",
    ),
    "unknown hint": (
        "from duet_rpc import method\n@method\ndef f(x: 'Wat'): pass\n",
        "words.py:2: f: a type hint can't be read: name 'Wat' is not defined",
    ),
    "star": (
        "from duet_rpc import method\n@method\ndef f(*xs: int): pass\n",
        "words.py:2: f: *xs: int has no form in JSON; take a list or a dict instead",
    ),
    "a type without end": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from typing import Generic, TypeVar\nfrom duet_rpc import method\nT = TypeVar('T')\n"
        "@dataclass\nclass Tree(Generic[T]):\n    branches: Tree[list[T]]\n"
        "@method\ndef f(tree: Tree[int]) -> int: return 1\n",
        "words.py:9: f: parameter tree: its type is nested without end",
    ),
    "hint of the result": (
        "from duet_rpc import method\n@method\ndef f() -> complex: return 1j\n",
        "words.py:2: f: the result: the hint complex has no form in JSON",
    ),
    "a record that is more than its fields": (
        "from dataclasses import InitVar, dataclass\nfrom duet_rpc import method\n@dataclass\n"
        "class A:\n    b: InitVar[int]\n@method\ndef f(a: A) -> int: return 1\n",
        "words.py:6: f: parameter a: A needs b, which is no field of it",
    ),
    "no signature": (
        "from duet_rpc import method\nmethod('f')(dict.update)\n",
        "dict.update: f: its parameters can't be read: ",
    ),
    "a hint that can't be compared": (
        "from duet_rpc import method\nfrom typing import Literal\n"
        "@method\ndef f(x: Literal[[1]]) -> int: return 1\n",
        "words.py:3: f: ",
    ),
    "a hint that raises": (
        "from duet_rpc import method\nclass Odd:\n    def __hash__(self): 1 / 0\n"
        "    def __call__(self): pass\n@method\ndef f(x: Odd()) -> int: return 1\n",
        "words.py:5: f: ZeroDivisionError\n",
    ),
    "async": (
        "from duet_rpc import method\n@method\nasync def f() -> int: return 1\n",
        "words.py:2: f: an `async def` is not awaited here; let a `def` call asyncio.run",
    ),
    "reserved name": (
        "from duet_rpc import method\n@method('rpc.discover')\ndef f(): pass\n",
        "words.py:2: rpc.discover: names that begin with rpc. are reserved",
    ),
    "no name": (
        "from duet_rpc import method\n@method('')\ndef f(): pass\n",
        "words.py:2: '': a name is a text of characters that can be seen",
    ),
    "a name that can't be shown": (
        "from duet_rpc import method\n@method('a\\x1b[31m')\ndef f(): pass\n",
        "words.py:2: 'a\\x1b[31m': a name is a text of characters that can be seen",
    ),
    "a name that is none": (
        "from duet_rpc import method\n@method(5)\ndef f(): pass\n",
        "words.py:2: 5: a name is a text of characters that can be seen",
    ),
    "two contexts": (
        "from duet_rpc import Context, method\n@method\ndef f(a: Context, b: Context): pass\n",
        "words.py:2: f: parameters a and b are both a Context; one is enough",
    ),
    "an error that can't be said": (
        "class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad\n",
        "words.py:3: Bad\n",
    ),
    "built-in name": (
        "from duet_rpc import method\n@method('version')\ndef f(): pass\n",
        "words.py:2: version is the name of a built-in method",
    ),
    "a name twice": (
        "from duet_rpc import method\n@method\ndef good(): pass\n",
        "words.py:2: good is already the name of the method at good.py:2",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_failing_file_is_named_and_the_rest_works(tmp_path: Path, kind: str) -> None:
    text, message = BROKEN[kind]
    good = write(
        tmp_path, "from duet_rpc import method\n@method\ndef good() -> int: return 1\n", "good.py"
    )
    bad = write(tmp_path, text)
    last = write(
        tmp_path, "from duet_rpc import method\n@method\ndef last() -> int: return 2\n", "last.py"
    )
    flags = [word for path in (good, bad, last) for word in ("--methods", str(path))]
    results, log = ask(
        tmp_path, request(1, "good") + request(2, "last") + request(3, "version"), *flags
    )
    assert results[:2] == [1, 2]
    assert "version" in results[2]
    assert f"ERROR a method could not be loaded: {message}" in log
    assert str(tmp_path) not in log


def test_an_ignored_script_block_is_reported_with_its_line(tmp_path: Path) -> None:
    text = '# /// script\n# dependencies = ["six"]\nfrom duet_rpc import method\n'
    path = write(tmp_path, text + "@method\ndef good() -> int: return 1\n")
    results, log = ask(tmp_path, request(1, "good"), "--methods", str(path))
    assert results == [1]
    where = "words.py:1: the `# /// script` block is ignored: it must end with a line `# ///`"
    assert log.count(where) == 1


def test_a_file_that_fails_half_way_leaves_nothing_half_made(tmp_path: Path) -> None:
    path = write(tmp_path, WORDS + "1 / 0\n")
    (error,), log = ask(tmp_path, request(1, "word_count", ["a"]), "--methods", str(path))
    assert error["code"] == -32601
    assert "words.py:21: ZeroDivisionError\n" in log


def test_a_broken_package_costs_its_own_methods_only(tmp_path: Path) -> None:
    broken = write(tmp_path, "", "lib/bad-1.dist-info/entry_points.txt")
    broken.write_bytes(b"[duet_rpc.methods]\nx = \xff")
    env = {**env_for(tmp_path), "PYTHONPATH": os.pathsep.join([str(TOP), str(tmp_path / "lib")])}
    command = [*SOURCE, "rpc", "--methods", "system"]
    code, replies, log = run(request(1, "system.ping") + request(2, "no"), command, env)
    assert code == 0
    assert replies[0]["result"] == "pong"
    assert replies[1]["error"]["code"] == -32601
    assert "could not be loaded: bad-1.dist-info: UnicodeDecodeError" in log


def test_a_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    _, log = ask(tmp_path, request(1, "x"), "--methods", str(tmp_path / "no.py"))
    assert "no.py: can't be read: No such file or directory" in log


def test_a_missing_module_may_be_meant_as_a_file(tmp_path: Path) -> None:
    _, log = ask(tmp_path, request(1, "x"), "--methods", "no_such_words")
    assert "no_such_words: there is no module of this name; is the file no_such_words.py" in log


# When.


def test_loading_waits_until_a_method_is_wanted(tmp_path: Path) -> None:
    path = write(tmp_path, WORDS + "import time\ntime.sleep(3)\n")
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        start = time.monotonic()
        client.call("version")
        assert time.monotonic() - start < 2.0
        client.send(request(2, "word_count", ["a"]))
        assert client.receive()["result"] == {"a": 1}
        assert time.monotonic() - start > 2.5


def test_an_idle_daemon_has_loaded_its_methods(tmp_path: Path) -> None:
    mark = tmp_path / "loaded"
    path = write(tmp_path, f"open({str(mark)!r}, 'w').close()\n")
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.call("version")
        wait_for_file(mark)
