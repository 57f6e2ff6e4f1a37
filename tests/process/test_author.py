"""The author's day: write, save, run, fail, fix, with a daemon that is never restarted."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.author import NOT_FOUND, ONE, rpc
from tests.machine import wait_for_loguru
from tests.method_files import write
from tests.support import TRIES, daemon, notification, request, wait_for_file, wait_until

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


# A save at any time.


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
        # 0.1 s from the time of the file, which is up to a tick of the kernel's clock earlier.
        assert min(took) > 0.085, "the time that somebody has for writing it"


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
