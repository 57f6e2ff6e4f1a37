"""`reloadMethods` finds what has changed, come or gone, wherever methods come from."""

from __future__ import annotations

import os
from pathlib import Path

from tests.method_files import SIX, WORDS, ask, env_for, write
from tests.support import SOURCE, TOP, daemon, notification, request


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
