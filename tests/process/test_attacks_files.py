"""What a hostile file, or a folder of them, may cost: its own methods, and nothing else."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.attacked import DEBUG, WINDOW, Wire, check_others, methods_folder, serve
from tests.attacks import FILES, HEAD, sparse
from tests.support import shortest, wait_for_file


@DEBUG
@pytest.mark.parametrize("what", FILES)
def test_a_hostile_file_costs_its_own_methods(
    what: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    files, prepare = FILES[what]
    methods_folder(tmp_path).mkdir(parents=True)
    if prepare:
        prepare(methods_folder(tmp_path))
    with serve(tmp_path, files, Wire, *flags) as wire:
        check_others(wire)
        if not flags:
            assert "Traceback" not in wire.text()


def test_a_file_that_is_too_large_is_named(tmp_path: Path) -> None:
    methods_folder(tmp_path).mkdir(parents=True)
    sparse(methods_folder(tmp_path))
    with serve(tmp_path, {}) as wire:
        problems = wire.ask("reloadMethods")["result"]["problems"]
    assert problems == ["huge.py: can't be read: it is larger than 1024 KiB"]


def test_2_000_files_are_loaded_in_seconds(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"m{n}.py": f"from duet_rpc import method\n@method\ndef m{n}() -> int: return {n}\n"
        for n in range(1000)
    }
    files.update({f"x{n}.py": "x = (\n" for n in range(1000)})

    def attempt() -> float:
        with serve(tmp_path, files) as wire:
            start = time.monotonic()
            assert wire.result("m999") == 999
            took = time.monotonic() - start
            assert len(wire.names()) > 1000
            assert wire.leave() < WINDOW
        return took

    assert shortest(attempt, 10.0) < 10.0


def test_a_folder_that_vanishes_and_comes_back_is_followed(tmp_path: Path) -> None:
    folder = methods_folder(tmp_path)
    with serve(tmp_path, {}) as wire:
        assert wire.result("good") == 7
        shutil.move(folder, tmp_path / "kept")
        folder.write_text("in the way")
        assert "good" not in wire.names()
        assert wire.result("good") == "failed"
        folder.unlink()
        shutil.move(tmp_path / "kept", folder)
        check_others(wire)


ODD_PATHS = [
    "/", "/dev/zero", "/nonesuch/x.py", "/x\ud800.py", "/" + "a" * 5000 + ".py", "/tmp/\nx.py",
    "//etc/passwd", "/proc/self/mem", "/tmp", "/../../etc/hostname", "relative.py", "", "/\0.py",
]  # fmt: skip


def test_an_odd_path_loads_nothing(tmp_path: Path) -> None:
    with serve(tmp_path, {}, Wire, "--debug") as wire:
        for path in ODD_PATHS:
            reply = wire.ask("loadMethods", file=path)
            assert reply.get("error", {}).get("code", -32602) == -32602
            if "result" in reply:
                assert reply["result"]["methods"] == ["good"]
        check_others(wire)


def test_files_that_change_all_the_time_cost_no_call(tmp_path: Path) -> None:
    """Saved whole, in pieces, broken, renamed, deleted."""
    import threading

    folder = methods_folder(tmp_path)
    done = threading.Event()
    text = "from duet_rpc import method\nimport helper\n@method\ndef f() -> int: return helper.N\n"

    def save() -> None:
        number = 0
        while not done.is_set():
            number += 1
            (folder / "new").write_text(f"N = {number}\n" if number % 5 else "N = (\n")
            (folder / "new").rename(folder / "helper.py")
            (folder / "f.py").write_text(text)
            if number % 7 == 0:
                (folder / "f.py").unlink()
            if number % 11 == 0:
                (folder / "helper.py").rename(folder / "other.py")

    with serve(tmp_path, {"f.py": text, "helper.py": "N = 0\n"}) as wire:
        saver = threading.Thread(target=save)
        saver.start()
        try:
            for _ in range(100):
                reply = wire.ask("f")
                known = type(reply.get("result")) is int or reply["error"]["code"] == -32601
                assert known, reply
                assert wire.result("good") == 7
        finally:
            done.set()
            saver.join()
        check_others(wire)


def test_a_package_whose_import_was_cancelled_can_be_imported_again(tmp_path: Path) -> None:
    package, mark, gate = tmp_path / "lib/half", tmp_path / "mark", tmp_path / "gate"
    package.mkdir(parents=True)
    (package / "one.py").write_text("__all__ = ['x']\nx = 1\n")
    (package / "__init__.py").write_text(
        f"from .one import *\nimport os, time\nopen({str(mark)!r}, 'w')\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "__all__ = one.__all__\n"
    )
    text = f"{HEAD}\nsys.path.append({str(package.parent)!r})\nimport half\n"
    text += "@method\ndef use() -> int: return half.x\n"
    with serve(tmp_path, {"use.py": text}) as wire:
        id = wire.start("use")
        wait_for_file(mark)
        wire.cancel(id)
        assert wire.reply(id)["error"]["code"] == -32800
        gate.touch()
        assert wire.result("use") == 1
        check_others(wire)
