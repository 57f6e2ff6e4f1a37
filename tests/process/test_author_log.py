"""What methods print, log and warn of is in the log of the daemon, in their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.author import rpc
from tests.method_files import write
from tests.support import notification, request, wait_for_file

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
