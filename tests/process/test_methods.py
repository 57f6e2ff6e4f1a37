"""Methods in Python: from a file to a reply, through the real daemon."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.machine import wait_until_computing, wait_until_idle
from tests.support import (
    SOURCE,
    TOP,
    WITH_METHODS,
    Client,
    daemon,
    frame,
    notification,
    request,
    run,
    wait_for_file,
)

WORDS = '''
from __future__ import annotations
from duet_rpc import method, Context, RpcError

@method
def word_count(text: str, top: int = 10) -> dict[str, int]:
    """Count the words of a text.

    The longer story.
    """
    counts: dict[str, int] = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:top])

@method("text.shout")
def shout(text: str, /, *, marks: int = 1, ctx: Context = None) -> str:
    return text.upper() + "!" * marks

assert word_count("a a") == {"a": 2}
'''

SIX = ["initialize", "listMethods", "describeMethods", "version", "setLogLevel", "shutdown"]


def write(folder: Path, text: str, name: str = "words.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def env_for(folder: Path) -> dict[str, str]:
    return {
        "HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": "",
        "XDG_STATE_HOME": "",
        "DUET_RPC_CONFIG": "",
    }


def ask(tmp_path: Path, data: bytes, *flags: str) -> tuple[list[Any], str]:
    """Return results or errors, and the log."""
    code, replies, log = run(data, [*SOURCE, "rpc", *flags], env_for(tmp_path))
    assert code == 0
    assert "Traceback" not in log
    return [reply.get("result", reply.get("error")) for reply in replies], log


def test_methods_can_be_called_by_name_and_position(tmp_path: Path) -> None:
    path = write(tmp_path, WORDS)
    (by_name, by_position, shout, shout_more), _ = ask(
        tmp_path,
        request(1, "word_count", {"text": "b a b", "top": 1})
        + request(2, "word_count", ["b a b"])
        + request(3, "text.shout", {"text": "hey", "marks": 3})
        + request(4, "text.shout", ["hey", 2]),
        "--methods",
        str(path),
    )
    assert by_name == {"b": 2}
    assert by_position == {"b": 2, "a": 1}
    assert shout == "HEY!!!"
    assert shout_more == "HEY!!"


def test_the_signature_is_the_description(tmp_path: Path) -> None:
    path = write(tmp_path, WORDS)
    (listed, described, document), _ = ask(
        tmp_path,
        request(1, "listMethods") + request(2, "describeMethods") + request(3, "rpc.discover"),
        f"--methods={path}",
    )
    names = [each["name"] for each in listed]
    assert names == [*SIX, "reloadMethods", "word_count", "text.shout"]
    assert listed[-2]["description"] == "Count the words of a text."
    assert listed[-1]["description"] == ""
    assert described[-2:] == [
        {
            "name": "word_count",
            "params": ["text: string", "top: integer = 10"],
            "returns": "object of integer",
        },
        {
            "name": "text.shout",
            "params": ["text: string", "marks: integer = 1"],
            "returns": "string",
        },
    ]
    counted = document["methods"][-2]
    assert counted["summary"] == "Count the words of a text."
    assert "The longer story." in counted["description"]
    assert counted["params"] == [
        {"name": "text", "required": True, "schema": {"type": "string"}},
        {"name": "top", "required": False, "schema": {"type": "integer", "default": 10}},
    ]
    assert counted["result"]["schema"] == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    assert counted["x-source"] == {"file": str(path), "line": 5}
    assert "x-source" not in document["methods"][0]


@pytest.mark.parametrize(
    ("params", "data"),
    [
        ({"text": 1}, {"param": "text", "expected": "string", "received": "integer"}),
        ({"text": "a", "top": "3"}, {"param": "top", "expected": "integer", "received": "string"}),
        (
            {"text": "a", "top": True},
            {"param": "top", "expected": "integer", "received": "boolean"},
        ),
        ({}, {"param": "text", "expected": "string", "received": "missing"}),
        (
            {"text": "a", "tpo": 3},
            {"param": "tpo", "expected": "no parameter of this name", "received": "integer"},
        ),
        (
            ["a", 1, 2],
            {"param": "[2]", "expected": "2 parameters at most", "received": "integer"},
        ),
    ],
)
def test_wrong_parameters_are_refused_before_the_method_runs(
    tmp_path: Path, params: object, data: object
) -> None:
    path = write(tmp_path, WORDS)
    (error,), log = ask(tmp_path, request(1, "word_count", params), "--methods", str(path))
    assert error["code"] == -32602
    assert error["data"] == data
    assert "WARN  method=word_count id=1 Invalid params" in log


# Where methods come from.


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


def test_a_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    _, log = ask(tmp_path, request(1, "x"), "--methods", str(tmp_path / "no.py"))
    assert "no.py: can't be read: No such file or directory" in log


def test_a_missing_module_may_be_meant_as_a_file(tmp_path: Path) -> None:
    _, log = ask(tmp_path, request(1, "x"), "--methods", "no_such_words")
    assert "no_such_words: there is no module of this name; is the file no_such_words.py" in log


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


def test_extras_of_annotated_are_no_matter(tmp_path: Path) -> None:
    text = (
        "from typing import Annotated\nfrom duet_rpc import method\n"
        "@method\ndef f(x: Annotated[int, ['a list']]) -> int: return x\n"
    )
    assert ask(tmp_path, request(1, "f", [3]), "--methods", str(write(tmp_path, text)))[0] == [3]


def test_positional_only_parameters_can_be_omitted_from_the_end(tmp_path: Path) -> None:
    text = (
        "from duet_rpc import Context, method\n@method\n"
        "def f(a: int = 1, b: int = 2, ctx: Context = None, /, c: int = 3) -> list:\n"
        "    return [a, b, ctx is not None, c]\n"
    )
    data = request(1, "f", {"b": 5}) + request(2, "f", {"c": 5}) + request(3, "f", [7, 8, 9])
    results, _ = ask(tmp_path, data, "--methods", str(write(tmp_path, text)))
    assert results == [[1, 5, True, 3], [1, 2, True, 5], [7, 8, True, 9]]


def test_the_accepted_values_are_said_in_json(tmp_path: Path) -> None:
    text = (
        "from typing import Literal, Union\nfrom duet_rpc import method\n"
        "@method\ndef f(x: Literal[True, 'a', 1, None]) -> None: pass\n"
        "@method\ndef g(x: Union[Literal[True], Literal['z']]) -> None: pass\n"
    )
    path = str(write(tmp_path, text))
    wrong: list[object] = [{}, ["y"], [2]]
    data = b"".join(request(1, name, params) for name in "fg" for params in wrong)
    results, _ = ask(tmp_path, data, "--methods", path)
    assert [error["data"]["accepted"] for error in results] == [
        *[["true", "a", "1", "null"]] * 3,
        *[["true", "z"]] * 3,
    ]
    assert [error["data"]["received"] for error in results] == ["missing", "y", "integer"] * 2


def test_a_name_without_end_is_cut(tmp_path: Path) -> None:
    text = "from duet_rpc import method\n@method\ndef f(x: dict[str, int]) -> None: pass\n"
    path = str(write(tmp_path, text))
    data = request(1, "f", {"n" * 1000: 1}) + request(2, "f", {"x": {"k" * 1000: ""}})
    results, _ = ask(tmp_path, data, "--methods", path)
    assert [error["data"]["param"] for error in results] == ["n" * 80, "x." + "k" * 80]


def test_a_record_that_refuses_its_values_is_named(tmp_path: Path) -> None:
    text = (
        "from dataclasses import dataclass\nfrom duet_rpc import method\n@dataclass\n"
        "class A:\n    b: int\n    def __post_init__(self):\n"
        "        assert self.b > 0, 'too small'\n"
        "@method\ndef f(a: A) -> int: return a.b\n"
    )
    path = str(write(tmp_path, text))
    (good, bad), log = ask(
        tmp_path, request(1, "f", [{"b": 1}]) + request(2, "f", [{"b": 0}]), "--methods", path
    )
    assert (good, bad["code"]) == (1, -32603)
    assert "AssertionError (words.py:7 in __post_init__)" in log


# Reloading.


def test_a_change_is_picked_up_without_a_restart(tmp_path: Path) -> None:
    path = write(tmp_path, WORDS)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        assert client.call("text.shout", ["a"]) == "A!"
        path.write_text(WORDS.replace('"!"', '"?"').replace("word_count", "words"))
        answer = client.call("reloadMethods")
        assert answer == {"methods": ["words", "text.shout"], "problems": []}
        assert client.call("text.shout", ["a"]) == "A?"
        assert client.call("words", ["a"]) == {"a": 1}
        client.send(request(9, "word_count", ["a"]))
        assert client.receive()["error"]["code"] == -32601
        path.write_text("x = (")
        broken = client.call("reloadMethods")
        assert broken["methods"] == ["words", "text.shout"]
        assert broken["problems"][0].startswith("words.py:1: SyntaxError")
        path.write_text(WORDS)
        assert client.call("reloadMethods")["problems"] == []
        assert client.call("word_count", ["a"]) == {"a": 1}


def test_reloading_finds_packages_files_beside_and_entry_points_again(tmp_path: Path) -> None:
    one = "from duet_rpc import method\n@method\ndef {}() -> int: return 1\n"
    write(tmp_path, "from . import inner\n", "lib/pack/__init__.py")
    write(tmp_path, one.format("of_package"), "lib/pack/inner.py")
    write(tmp_path, one.format("of_entry_point"), "lib/third.py")
    write(tmp_path, "[duet_rpc.methods]\nx = third\n", "lib/third-1.dist-info/entry_points.txt")
    write(tmp_path, "Name: third\nVersion: 1\n", "lib/third-1.dist-info/METADATA")
    write(tmp_path, "VALUE = 1\n", "own/beside.py")
    write(tmp_path, "VALUE = 1\n", "own/below/deeper.py")
    text = "import beside, below.deeper\nfrom duet_rpc import method\n@method\n"
    text += "def own() -> int: return min(beside.VALUE, below.deeper.VALUE)\n"
    own = write(tmp_path, text, "own/own.py")
    names = ["own", "of_package", "of_entry_point"]
    env = {**env_for(tmp_path), "PYTHONPATH": os.pathsep.join([str(TOP), str(tmp_path / "lib")])}
    env["PYTHONDONTWRITEBYTECODE"] = ""  # what is compiled is kept, whoever runs the tests
    flags = ["--methods", str(own), "--methods", "pack"]
    with daemon([*SOURCE, "rpc", *flags], env) as client:
        assert [client.call(name) for name in names] == [1, 1, 1]
        assert client.call("reloadMethods") == {"methods": names, "problems": []}
        for path in (
            *own.parent.rglob("b*/*.py"),
            own.parent / "beside.py",
            *(tmp_path / "lib").rglob("*.py"),
        ):
            # As if saved within the same second, and with its size unchanged.
            time_of_it = path.stat().st_mtime
            path.write_text(path.read_text().replace("return 1", "return 2").replace("= 1", "= 2"))
            os.utime(path, (time_of_it, time_of_it))
        assert client.call("reloadMethods") == {"methods": names, "problems": []}
        assert [client.call(name) for name in names] == [2, 2, 2]


def test_files_that_are_gone_renamed_or_new_are_noticed(tmp_path: Path) -> None:
    text = "from duet_rpc import method\n@method\ndef {}() -> int: return 1\n"
    folder = "home/.config/duet-rpc/methods"
    old = write(tmp_path, text.format("f"), f"{folder}/a.py")
    named = write(tmp_path, text.format("g"))
    with daemon([*SOURCE, "rpc", "--methods", named], env_for(tmp_path)) as client:
        assert client.call("f") == client.call("g") == 1
        old.rename(old.parent / "b.py")
        assert client.call("reloadMethods") == {"methods": ["g", "f"], "problems": []}
        (old.parent / "b.py").unlink()
        named.unlink()
        write(tmp_path, text.format("h"), f"{folder}/c.py")
        answer = client.call("reloadMethods")
        assert answer["methods"] == ["h"]
        assert answer["problems"] == ["words.py: can't be read: No such file or directory"]


def test_a_relative_file_stays_the_same_wherever_a_method_goes(tmp_path: Path) -> None:
    text = (
        "import os\nfrom duet_rpc import method\n@method\ndef f() -> int: return 1\nos.chdir('/')\n"
    )
    write(tmp_path, text, "a.py")
    write(tmp_path, text.replace("f()", "g()"), "b.py")
    flags = ["--methods", "a.py", "--methods", "./b.py"]
    with daemon([*SOURCE, "rpc", *flags], env_for(tmp_path), cwd=tmp_path) as client:
        assert client.call("f") == client.call("g") == 1
        assert client.call("reloadMethods") == {"methods": ["f", "g"], "problems": []}


def test_a_file_imported_by_another_does_not_clash(tmp_path: Path) -> None:
    folder = "home/.config/duet-rpc/methods"
    text = "from duet_rpc import method\n@method\ndef {}() -> int: return 1\n"
    write(tmp_path, "import b\n" + text.format("f"), f"{folder}/a.py")
    write(tmp_path, text.format("g"), f"{folder}/b.py")
    data = request(1, "f") + request(2, "g") + request(3, "reloadMethods")
    results, log = ask(tmp_path, data)
    assert results == [1, 1, {"methods": ["g", "f"], "problems": []}]
    assert "ERROR" not in log


def test_a_clash_of_files_with_one_name_says_so(tmp_path: Path) -> None:
    text = "from duet_rpc import method\n@method\ndef f() -> int: return 1\n"
    paths = [str(write(tmp_path, text, f"{folder}/words.py")) for folder in "ab"]
    flags = [word for path in paths for word in ("--methods", path)]
    _, log = ask(tmp_path, request(1, "f"), *flags)
    assert "words.py:2: f is already the name of the method at another words.py:2" in log


def test_a_hanging_reload_can_be_cancelled(tmp_path: Path) -> None:
    text = "from duet_rpc import method\n@method\ndef {}() -> int: return 1\n"
    bad = write(tmp_path, text.format("f"), "a.py")
    good = write(tmp_path, text.format("g"), "b.py")
    flags = ["--methods", str(bad), "--methods", str(good)]
    with daemon([*SOURCE, "rpc", *flags], env_for(tmp_path)) as client:
        assert client.call("f") == 1
        bad.write_text("while True: pass\n")
        client.send(request(7, "reloadMethods"))
        assert client.silent_for(0.8)
        client.send(notification("$/cancelRequest", {"id": 7}))
        assert client.receive()["error"]["code"] == -32800
        assert client.call("g") == 1
        log = client.finish()[2]
        interrupted = "a.py:1: interrupted while it was being loaded"
        assert f"a method could not be loaded: {interrupted}" in log


def test_reload_without_methods_is_allowed_but_not_listed(
    tmp_path: Path,
) -> None:
    (answer, listed), _ = ask(tmp_path, request(2, "reloadMethods") + request(1, "listMethods"))
    assert answer == {"methods": [], "problems": []}
    assert [each["name"] for each in listed] == SIX


# The bundled pack.


def test_ping_and_echo_are_loaded_by_name_only(tmp_path: Path) -> None:
    calls = request(1, "system.ping") + request(2, "system.echo", {"message": "héllo"})
    assert ask(tmp_path, calls, "--methods", "system")[0] == ["pong", "héllo"]
    assert [error["code"] for error in ask(tmp_path, calls)[0]] == [-32601, -32601]


# Progress.


def test_progress_is_sent_before_the_reply_with_a_token() -> None:
    for token in ("t", 5):
        params = {"count": 3, "pause": 0.1, "_meta": {"progressToken": token}}
        with daemon(WITH_METHODS) as client:
            client.call("version", id="up")
            client.send(request(1, "steps", params))
            notes = [json.loads(client.receive_raw()) for _ in range(3)]
            assert client.receive()["result"] == "done"
        assert notes == [
            {
                "jsonrpc": "2.0",
                "method": "$/progress",
                "params": {
                    "token": token,
                    "value": {"done": n, "total": 3, "message": f"step {n}"},
                },
            }
            for n in (1, 2, 3)
        ]


@pytest.mark.parametrize(
    "params", [[2], {"count": 2}, {"count": 2, "_meta": {}}, {"count": 2, "_meta": 5}]
)
def test_without_a_token_there_is_no_progress(params: object) -> None:
    _, replies, _ = run(request(1, "steps", params), WITH_METHODS)
    assert [reply["result"] for reply in replies] == ["done"]


THREADS = """
import time
from concurrent.futures import ThreadPoolExecutor
from duet_rpc import Context, method

KEPT = []

@method
def pool(text: str, ctx: Context) -> str:
    def work(thread):
        for step in range(100):
            ctx.progress(step, 100, f"{thread} {text}")
            with ctx.uninterrupted():
                ctx.log.info("a line")
        return ctx.cancelled
    with ThreadPoolExecutor(4) as threads:
        assert not any(threads.map(work, range(4)))
    return "done"

@method
def flood(ctx: Context) -> int:
    for step in range(20_000):
        ctx.progress(step, 20_000)
    time.sleep(0.2)
    ctx.progress(20_000, 20_000)
    return step

@method
def keep(ctx: Context) -> str:
    KEPT.append(ctx)
    KEPT[0].progress(len(KEPT))
    return "kept"
"""


def until_reply(client: Client) -> tuple[list[Any], object]:
    """Return the values of all progress until the next reply, and that reply."""
    notes: list[Any] = []
    while True:
        message = json.loads(client.receive_raw())
        if "id" in message:
            return notes, message
        notes.append(message["params"]["value"])


def test_a_flood_of_progress_costs_the_caller_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, THREADS)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.call("version")
        began = time.monotonic()
        client.send(request(1, "flood", {"_meta": {"progressToken": 1}}))
        notes, reply = until_reply(client)
        assert reply == {"jsonrpc": "2.0", "id": 1, "result": 19_999}
        done = [note["done"] for note in notes]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, 20_000)  # the first, and what follows a pause
        assert len(done) <= 12 + 50 * (time.monotonic() - began)


@pytest.mark.parametrize("size", [10, 20_000])
def test_threads_of_a_method_report_progress_in_whole_frames(tmp_path: Path, size: int) -> None:
    path = write(tmp_path, THREADS)
    meta = {"progressToken": 1}
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.call("version")
        client.send(request(1, "pool", {"text": "x" * size, "_meta": meta}) + request(2))
        wait_until_idle(client.process.pid)  # the pipe is full, and all threads want to write
        notes, reply = until_reply(client)
        assert notes
        for thread in range(4):
            mine = [note["done"] for note in notes if note["message"].startswith(f"{thread} ")]
            assert mine == sorted(mine)
        assert notes[-1]["done"] == 99, "the last report is never left out"
        assert reply == {"jsonrpc": "2.0", "id": 1, "result": "done"}
        assert client.receive()["id"] == 2
        client.send(request(3, "pool", {"text": "x" * 20_000, "_meta": meta}))
        wait_until_idle(client.process.pid)
        client.close_input()  # while they are stuck
        assert client.wait()[0] == 0


def test_there_is_no_progress_of_a_request_that_was_answered(tmp_path: Path) -> None:
    path = write(tmp_path, THREADS)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.send(request(1, "keep", {"_meta": {"progressToken": "t"}}))
        assert json.loads(client.receive_raw())["params"]["value"]["done"] == 1
        assert client.receive()["id"] == 1
        assert client.call("keep", id=2) == "kept"


def test_log_lines_of_a_method_have_name_and_id() -> None:
    _, _, log = run(request(7, "chatty"), WITH_METHODS)
    for words in ("DEBUG method=chatty id=7 d", "INFO  method=chatty id=7 i {braces} <red>",
                  "WARN  method=chatty id=7 w", "ERROR method=chatty id=7 e",
                  "INFO  method=chatty id=7 ['no', 1, 'text']"):  # fmt: skip
        assert words in log


# Cancel.


def cancel(id: object) -> bytes:
    return notification("$/cancelRequest", {"id": id})


CANCELLED = {"code": -32800, "message": "Request cancelled"}


def framed(text: str) -> bytes:
    """Frame JSON text as it stands: numbers keep their spelling."""
    return b"Content-Length: %d\r\n\r\n" % len(text) + text.encode()


@pytest.mark.parametrize(
    ("id", "others"), [("1e400", ["2e400", "1e401"]), ("1.0", ["1", '"1.0"', "1e0"]), ("-0", ["0"])]
)
def test_a_cancel_names_an_id_as_it_is_spelled(id: str, others: list[str]) -> None:
    cancels = [
        framed(f'{{"jsonrpc":"2.0","method":"$/cancelRequest","params":{{"id":{each}}}}}')
        for each in (*others, id)
    ]
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(framed(f'{{"jsonrpc":"2.0","id":{id},"method":"give_up"}}'))
        client.send(b"".join(cancels[:-1]))
        assert client.silent_for(0.4)
        client.send(cancels[-1])
        assert client.receive_raw().startswith(f'{{"jsonrpc":"2.0","id":{id},"error"'.encode())


@pytest.mark.parametrize("token", ["1e400", "1e2", "1.0", '"t"', "7"])
def test_a_progress_token_comes_back_as_it_went_in(token: str) -> None:
    params = f'{{"count":1,"_meta":{{"progressToken":{token}}}}}'
    with daemon(WITH_METHODS) as client:
        client.send(framed(f'{{"jsonrpc":"2.0","id":1,"method":"steps","params":{params}}}'))
        progress, reply = client.receive_raw(), client.receive()
    assert f'"token":{token},'.encode() in progress
    assert reply["result"] == "done"


def test_a_second_cancel_interrupts_a_method_that_caught_the_first() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "stubborn"))
        wait_until_idle(client.process.pid)
        client.send(cancel(1))
        assert client.silent_for(0.5)
        client.send(cancel(1) + request(2))
        assert client.receive()["error"] == CANCELLED
        assert client.receive()["id"] == 2


@pytest.mark.parametrize("id", [1, "one", 1.5, -3, 10**40, "\ud800"])
@pytest.mark.parametrize("method", ["give_up", "forget_me"])
def test_a_running_method_is_interrupted_and_the_next_request_served(
    method: str, id: object
) -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(id, method, [30.0] if method == "forget_me" else None))
        wait = wait_until_idle if method == "forget_me" else wait_until_computing
        wait(client.process.pid)
        start = time.monotonic()
        client.send(cancel(id) + request(2))
        reply = client.receive()
        assert (reply["id"], reply["error"]) == (id, CANCELLED)
        assert client.receive()["id"] == 2
        assert time.monotonic() - start < 5.0
        code, _, log = client.finish()
    assert code == 0
    assert "Request cancelled" in log
    assert "WARN" not in log


def test_a_method_is_cancelled_while_it_is_being_loaded(tmp_path: Path) -> None:
    text = (
        "import time\nfrom duet_rpc import method\ntime.sleep(0.5)\n"
        "@method\ndef slow() -> None: time.sleep(60)\n"
    )
    path = write(tmp_path, text)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.send(request(1, "slow") + cancel(1) + request(2))
        assert client.receive()["error"] == CANCELLED
        assert client.receive()["id"] == 2


def test_a_method_behind_a_stuck_reply_can_be_cancelled() -> None:
    with daemon(WITH_METHODS) as client:
        client.send(request(1, "big", [1_000_000]) + request(2, "give_up") + cancel(2) + request(3))
        wait_until_idle(client.process.pid)
        assert client.receive()["id"] == 1
        assert client.receive()["error"] == CANCELLED
        assert client.receive()["id"] == 3


def test_a_cancel_of_another_id_changes_nothing() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "forget_me", [1.0]))
        wait_until_idle(client.process.pid)
        client.send(cancel("1") + cancel(1.0) + cancel(2) + cancel(None) + cancel([]))
        assert client.receive()["result"] == "remembered"


def test_a_queued_request_is_dropped_and_answered_in_its_turn() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "forget_me", [1.0]) + request(2, "forget_me", [30.0]) + request(3))
        wait_until_idle(client.process.pid)
        client.send(cancel(2))
        assert client.receive()["result"] == "remembered"
        reply = client.receive()
        assert (reply["id"], reply["error"]) == (2, CANCELLED)
        assert client.receive()["id"] == 3


def test_a_cancel_that_comes_too_late_is_no_noise() -> None:
    _, replies, log = run(request(1) + cancel(1) + request(2))
    assert [reply["id"] for reply in replies] == [1, 2]
    assert "WARN" not in log


def test_what_must_not_be_interrupted_is_not() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "careful"))
        wait_until_computing(client.process.pid)
        client.send(cancel(1))
        assert client.receive()["error"] == CANCELLED
        _, _, log = client.finish()
    assert "saved, cancelled: True" in log


def test_cancelling_amid_progress_never_breaks_a_frame() -> None:
    for _ in range(5):
        with daemon(WITH_METHODS) as client:
            client.call("version", id="up")
            params = {"count": 10_000_000, "_meta": {"progressToken": "t" * 500}}
            client.send(request(1, "steps", params))
            for _ in range(50):
                client.receive_raw()
            client.send(cancel(1) + request(2))
            while True:
                message = json.loads(client.receive_raw())
                if "id" in message:
                    break
            assert message["error"] == CANCELLED
            assert client.receive()["id"] == 2


def test_input_during_a_method_is_answered_in_order() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "forget_me", [0.8]))
        wait_until_idle(client.process.pid)
        client.send(request(2) + b"garbage\n" + request(3) + frame("{") + request(4))
        replies = [client.receive() for _ in range(6)]
    assert [reply["id"] for reply in replies] == [1, 2, None, 3, None, 4]


def test_input_beyond_the_cap_is_served_later() -> None:
    large = request(0, "setLogLevel", ["x" * 4_000_000])
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "forget_me", [2.0]))
        replies = client.exchange(large * 5 + request(2), 7)
    assert [reply["id"] for reply in replies] == [1, 0, 0, 0, 0, 0, 2]


# What methods do wrong.


def call(method: str, params: object = None) -> tuple[dict[str, Any], str]:
    _, replies, log = run(request(1, method, params) + request(2), WITH_METHODS)
    assert [reply["id"] for reply in replies] == [1, 2]
    return replies[0], log


@pytest.mark.parametrize(
    ("method", "where"), [("recurse", "RecursionError"), ("hoard", "MemoryError")]
)
def test_a_method_that_takes_too_much_is_an_internal_error(method: str, where: str) -> None:
    reply, log = call(method)
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert f"method={method} id=1 Internal error: {where}" in log


@pytest.mark.parametrize("body", ["raise ValueError", "return 5", "import sys; sys.exit(3)"])
def test_an_error_with_an_unreadable_message_is_internal(tmp_path: Path, body: str) -> None:
    text = (
        "from duet_rpc import method\n"
        f"class Bad(Exception):\n    def __str__(self): {body}\n"
        "@method\ndef bad() -> None: raise Bad\n"
    )
    flags = ["--methods", str(write(tmp_path, text))]
    results, log = ask(tmp_path, request(1, "bad") + request(2), *flags)
    assert results[0] == {"code": -32603, "message": "Internal error"}
    assert "version" in results[1]
    assert "Internal error: Bad (words.py:5 in bad)" in log


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


def test_a_fault_of_our_own_costs_one_request() -> None:
    code, replies, log = run(request(1, "odd") + notification("odd") + request(2), WITH_METHODS)
    assert code == 0
    assert replies[0]["error"] == {"code": -32603, "message": "Internal error"}
    assert replies[1]["id"] == 2
    assert log.count("ERROR method=odd") == 2
    assert "Internal error: KeyError (daemon_with_methods.py" in log


STRAYS = """
import threading, time
from duet_rpc import method

class Odd:
    def __del__(self): raise ValueError("of an object")

@method
def strays(secret: str) -> str:
    Odd()
    def work(): raise ValueError("of a thread: " + secret)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return "done"
"""


def test_unraisable_exceptions_are_logged(tmp_path: Path) -> None:
    flags = ["--methods", str(write(tmp_path, STRAYS))]
    results, log = ask(tmp_path, request(1, "strays", ["of no use"]), *flags)
    assert results == ["done"]
    assert "ERROR ValueError (words.py:6 in __del__), ignored" in log
    assert "ERROR ValueError (words.py:11 in work), ignored" in log


def test_a_method_that_takes_the_signals_does_not_keep_them() -> None:
    import signal

    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        assert client.call("signals") == "taken"
        client.send(request(2, "give_up"))
        wait_until_computing(client.process.pid)
        client.send(cancel(2))
        assert client.receive()["error"] == CANCELLED
        client.signal(signal.SIGTERM)
        assert client.wait()[0] == 0


def test_a_method_with_asyncio_does_not_keep_the_signals(
    tmp_path: Path,
) -> None:
    import signal

    text = (
        "import asyncio, signal\nfrom duet_rpc import method\n@method\ndef loop() -> str:\n"
        "    async def work():\n"
        "        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)\n"
        "        await asyncio.sleep(0.01)\n"
        "        return 'done'\n"
        "    return asyncio.run(work())\n"
    )
    path = write(tmp_path, text)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        assert client.call("loop") == "done"
        wait_until_idle(client.process.pid)
        client.signal(signal.SIGTERM)
        code, seconds = client.wait()
    assert code == 0
    assert seconds < 1.5


def test_a_method_that_forks_answers_once() -> None:
    reply, _ = call("forks")
    assert reply["result"] == "parent"
