"""Hostile methods and files, by what they do. Each may cost its own call, and nothing else.

For `tests/process/test_attacks*.py`, one at a time, and for `make chaos`, all at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Callable

GOOD = """
from duet_rpc import method

@method
def good() -> int:
    print("good was here", flush=True)
    return 7
"""

HEAD = """
import atexit, builtins, json, logging, os, select, signal, sys, threading, time
from duet_rpc import Context, RpcError, method, on_stop

def leave(*_, **__):
    raise SystemExit(9)
"""

SPIN = f"""{HEAD}
@method
def spin(mark: str) -> None:
    open(mark, "w")
    while True: pass
"""

PROGRESS = f"""{HEAD}
@method
def progress(ctx: Context) -> int:
    for step in range(5):
        ctx.progress(step)
        time.sleep(0.01)
    return 7
"""


def bad(body: str, load: str = "") -> dict[str, str | bytes]:
    """Write a file whose method `bad` does something."""
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return {"bad.py": f"{HEAD}{load}\n@method\ndef bad() -> int:\n{lines}\n"}


# What a method changes for the whole process.

CHANGES = {
    "a recursion limit too low for others": "sys.setrecursionlimit(30)\nreturn 1",
    "an alarm that is left on": "signal.setitimer(signal.ITIMER_REAL, 0.2)\nreturn 1",
    "an alarm that raises again and again": (
        "signal.signal(signal.SIGALRM, leave)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)\nreturn 1"
    ),
    "a timer of a profiler": "signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)\nreturn 1",
    "signals that are blocked": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nreturn 1"
    ),
    "signals that are ignored": (
        "for each in (signal.SIGTERM, signal.SIGINT, signal.SIGURG, signal.SIGVTALRM):\n"
        "    signal.signal(each, signal.SIG_IGN)\n"
        "signal.set_wakeup_fd(-1)\nreturn 1"
    ),
    "a trace function that raises": "sys.settrace(leave)\nreturn 1",
    "a profile function that raises": "sys.setprofile(leave)\nreturn 1",
    "another isinstance": "builtins.isinstance = leave\nreturn 1",
    "another len and getattr": "builtins.len = builtins.getattr = leave\nreturn 1",
    "another open": "builtins.open = leave\nreturn 1",
    "another import": "builtins.__import__ = leave\nreturn 1",
    "another os.stat": "os.stat = leave\nreturn 1",
    "another os.read and os.write": "os.read = os.write = leave\nreturn 1",
    "another os.listdir and isdir": "os.listdir = os.path.isdir = os.path.isfile = leave\nreturn 1",
    "another select.poll": "select.poll = None\nreturn 1",
    "another clock": "time.time = time.monotonic = time.sleep = leave\nreturn 1",
    "another json": "json.dumps = json.loads = json.JSONEncoder.encode = leave\nreturn 1",
    "another signal module": (
        "signal.signal = signal.getsignal = signal.pthread_kill = signal.setitimer = leave\n"
        "return 1"
    ),
    "another threading module": (
        "threading.current_thread = threading.main_thread = threading.get_ident = leave\nreturn 1"
    ),
    "no descriptor that is free": (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nreturn 1"
    ),
    "a stdout of its own": "sys.stdout = None\nreturn 1",
    "a stdout that raises": (
        "class Out:\n    write = flush = leave\nsys.stdout = Out()\nprint('x')"
    ),
    "a stdout that was closed": "sys.stdout.close()\nreturn 1",
    "a path with anything in it": "sys.path[:0] = [3, None, object(), 2.5]\nreturn 1",
    "no path": "sys.path = None\nreturn 1",
    "modules that are none": (
        "class Odd:\n    __getattr__ = leave\n"
        "sys.modules['zork'] = Odd()\nsys.modules['zork2'] = None\n"
        "sys.modules['logging'] = Odd()\nreturn 1"
    ),
    "no environment": "os.environ.clear()\nreturn 1",
    "a working directory that is gone": (
        "os.mkdir('gone')\nos.chdir('gone')\nos.rmdir(os.getcwd())\nreturn 1"
    ),
}

# What a method raises.

RAISED = {
    "data that is another when it is looked at again": (
        "class Data(dict):\n    looks = 0\n    def items(self):\n        Data.looks += 1\n"
        "        return [('a', 1 if Data.looks == 1 else object())]\n"
        "raise RpcError(5, 'x', Data(a=1))"
    ),
    "data that ends the process when it is looked at again": (
        "class Data(dict):\n    looks = 0\n    def items(self):\n        Data.looks += 1\n"
        "        return [('a', 1)] if Data.looks == 1 else leave()\n"
        "raise RpcError(5, 'x', Data(a=1))"
    ),
    "a text that is no plain string": (
        "class Text(str):\n    def __getitem__(self, at): return object()\n    __len__ = leave\n"
        "class Odd(Exception):\n    def __str__(self): return Text('x')\nraise Odd"
    ),
    "causes in a circle": (
        "a, b = ValueError('a'), KeyError('b')\n"
        "a.__cause__ = a.__context__ = b\nb.__cause__ = b.__context__ = a\nraise a"
    ),
    "a chain without end": (
        "error = None\nfor number in range(100_000):\n    outer = ValueError(number)\n"
        "    outer.__cause__ = error\n    error = outer\nraise error"
    ),
    "a text of 50 MB": "raise ValueError('x' * 50_000_000)",
    "lone surrogates": "raise KeyError('\\ud800\\n' * 1_000_000)",
    "a source that became a pipe": "os.unlink(__file__)\nos.mkfifo(__file__)\nraise ValueError",
    "a source that is gone": "os.unlink(__file__)\nraise ValueError",
}
if sys.version_info >= (3, 11):
    RAISED["groups in groups"] = (
        "error = ValueError('x')\nfor _ in range(1000):\n"
        "    error = ExceptionGroup('g', [error])\nraise error"
    )
    RAISED["more exceptions in groups than can be printed"] = (
        "error = ValueError('x')\nfor _ in range(30):\n"
        "    error = ExceptionGroup('g', [error, error])\nraise error"
    )


# What is in the folder of methods.


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "helper.py")


def endless(folder: Path) -> None:
    (folder / "helper.py").symlink_to("/dev/zero")


def sparse(folder: Path) -> None:
    with (folder / "huge.py").open("wb") as file:
        file.truncate(3 << 30)


def loop(folder: Path) -> None:
    (folder / "loop.py").symlink_to(folder / "loop.py")


def nested(folder: Path) -> None:
    (folder / "helper").mkdir()
    (folder / "helper/__init__.py").touch()
    (folder / "helper/again").symlink_to(folder)


IMPORTS_HELPER = f"import helper\n{HEAD}\n@method\ndef bad() -> int: return 1\n"
RAISES_ODDLY = "class Odd(Exception):\n    def __str__(self): raise SystemExit(9)\nraise Odd\n"
FILES: dict[str, tuple[dict[str, str | bytes], Callable[[Path], None] | None]] = {
    "a helper that is a pipe": ({"bad.py": IMPORTS_HELPER}, fifo),
    "a helper that never ends": ({"bad.py": IMPORTS_HELPER}, endless),
    "a helper that contains its own folder": ({"bad.py": IMPORTS_HELPER}, nested),
    "a file of 3 GB": ({}, sparse),
    "a file that takes long to compile": ({"a.py": "x = [1, 2, 3]\n" * 400_000}, None),
    "a file nested too deeply": ({"a.py": "(" * 100_000}, None),
    "a link to itself": ({}, loop),
    "a word that takes long to search": ({"a.py": f"'''\nfrom {'a' * 200_000}!\n'''\n"}, None),
    "NUL bytes": ({"a.py": b"x = 1\0\n"}, None),
    "UTF-16": ({"a.py": "x = 'é'\n".encode("utf-16")}, None),
    "Latin-1": ({"a.py": "x = 'é'\n".encode("latin-1")}, None),
    "an unknown encoding": ({"a.py": b"# -*- coding: nonesuch -*-\n"}, None),
    "helpers that import each other": (
        {"bad.py": IMPORTS_HELPER, "helper.py": "import other\n", "other.py": "import helper\n"},
        None,
    ),
    "a file that deletes itself": ({"a.py": "import os\nos.unlink(__file__)\n"}, None),
    "a file that writes itself again": ({"a.py": "open(__file__, 'a').write('#\\n')\n"}, None),
    "an exception that ends the process when it is read": ({"a.py": RAISES_ODDLY}, None),
    "a name that is equal to everything": (
        {
            "a.py": f"{HEAD}\nclass Name(str):\n    def __hash__(self): return hash('good')\n"
            "    __eq__ = leave\n@method(Name('bad'))\ndef f(): pass\n"
        },
        None,
    ),
    "a finder that ends the process": (
        {
            "a.py": f"{HEAD}\nclass Finder:\n    def find_spec(self, name, *_):\n"
            "        if name == 'nonesuch': leave()\n"
            "sys.meta_path.insert(0, Finder())\nimport nonesuch\n"
        },
        None,
    ),
    "a file with other built-in functions": (
        {"a.py": f"{HEAD}\nbuiltins.isinstance = builtins.len = leave\n"},
        None,
    ),
    "threads that print without end": (
        {
            "a.py": f"{HEAD}\ndef run():\n    while True: print('x'); time.sleep(0.001)\n"
            "for _ in range(4): threading.Thread(target=run, daemon=True).start()\n"
        },
        None,
    ),
    "a handler of logging that raises": (
        {
            "a.py": f"{HEAD}\nclass Handler(logging.Handler):\n    emit = leave\n"
            "    stream = property(leave)\nlogging.getLogger().addHandler(Handler())\n"
        },
        None,
    ),
    "300 files that fail": ({f"f{n}.py": f"raise ValueError({n})\n" for n in range(300)}, None),
}

# What happens at the end.

ENDINGS = {
    "on_stop that ends the process": "@on_stop\ndef stop(): leave()",
    "on_stop that never ends": "@on_stop\ndef stop(): time.sleep(60)",
    "on_stop that forks": "@on_stop\ndef stop():\n    os.fork()\n    time.sleep(60)",
    "on_stop that starts a thread": (
        "@on_stop\ndef stop(): threading.Thread(target=time.sleep, args=[60]).start()"
    ),
    "atexit that prints": (
        "@atexit.register\ndef stop():\n    print('bye')\n    sys.__stdout__.write('bye')\n"
        "    sys.__stdout__.flush()\n    os.write(1, b'bye')"
    ),
    "atexit that raises": "@atexit.register\ndef stop(): raise OSError(3, 'x')",
    "atexit that ends the process": "atexit.register(leave)",
    "atexit that raises without a stderr": (
        "class Err:\n    write = flush = leave\n"
        "@atexit.register\ndef stop():\n    sys.stderr = Err()\n    raise OSError(3, 'x')"
    ),
    "atexit that never ends": (
        "@atexit.register\ndef stop():\n    while True:\n        try: time.sleep(60)\n"
        "        except BaseException: pass"
    ),
    "threads that go on": "threading.Thread(target=time.sleep, args=[60]).start()",
    "threads that fork": (
        "def run():\n    if not os.fork(): time.sleep(60)\n"
        "for _ in range(5): threading.Thread(target=run, daemon=True).start()"
    ),
    "a fork that stays": "if not os.fork():\n    time.sleep(60)",
    "a fork in a session of its own": "if not os.fork():\n    os.setsid()\n    time.sleep(60)",
}
