"""`duet-rpc new NAME`: write a first command, one that runs."""

from __future__ import annotations

import keyword
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING

from duet_rpc.command_line import UsageError, shorten
from duet_rpc.config.files import user_folder
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry
from duet_rpc.program import program_name
from duet_rpc.terminal.output import print_error, print_stderr

if TYPE_CHECKING:
    from duet_rpc.command_line import Arguments

TEMPLATE = '''\
"""Commands of mine, for Emacs, the terminal and AI clients."""

from duet_rpc import Region, command


@command
def {name}(text: Region, longest: int = 2) -> str:
    """Count the words of a text, and name the longest.

    Emacs passes the region, or the whole buffer, and asks for the rest.

    The names, the type hints and this text are all that callers see of the function.
    """
    words = text.split()
    named = sorted(set(words), key=len, reverse=True)[:longest]
    return f"words: {{len(words)}}, longest: {{', '.join(named)}}"
'''


def new(arguments: Arguments) -> int:
    """Write the file and print its path, alone, on stdout; return the exit code.

    On a terminal, the person's own editor then takes the place of this program.
    """
    name = arguments.operands[0]
    name = name[:-3] if name.endswith(".py") else name
    problem = wrong_with(name)
    if problem:
        raise UsageError(problem, "new")
    folder = user_folder(os.environ)
    if folder is None:
        print_error("no home directory for the folder of your methods; set HOME")
        return 1
    path = os.path.join(folder, "methods", f"{name}.py")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(name=name))
    except FileExistsError:
        what = path if os.path.lexists(path) else os.path.dirname(path)
        print_error(f"{what} already exists and was left as it is; choose another name")
        return 1
    except OSError as error:
        print_error(f"cannot write {path}: {error.strerror}")
        return 1
    print(path)
    print_stderr(f"Try it: {program_name()} call {name} text=hello")
    print_stderr(f"In Emacs, with (duet-rpc-mode 1): M-x {name.replace('_', '-')}")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor and os.isatty(0) and os.isatty(1):
        return edit(editor, path)
    return 0


def edit(editor: str, path: str) -> int:
    """Run an editor instead of this program; return the exit code where that is not possible."""
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores, and the editor would
    try:
        words = shlex.split(editor)
        os.execvp(words[0], [*words, path])  # noqa: S606 - no shell is wanted
    except (OSError, ValueError, IndexError):
        print_error(f"cannot start the editor {editor!r}; set EDITOR")
    return 1


def wrong_with(name: str) -> str:
    """Return why a name is not suitable for a file of methods and its method; "" if it is."""
    if not name.isidentifier() or not name.isascii():
        better = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_")
        hint = f", such as {better}" if better.isidentifier() and wrong_with(better) == "" else ""
        return f"{shorten(name)} is not a name in Python; use letters, digits and _{hint}"
    if name.startswith("_"):
        return f"{shorten(name)}: files whose names begin with _ are not loaded"
    if keyword.iskeyword(name):
        return f"{shorten(name)} is a keyword of Python; choose another name"
    if name in standard_modules() or name == "duet_rpc":
        return f"{shorten(name)} is the name of a module that others import; choose another name"
    builtin = Registry()
    add_builtin(builtin, print, print)
    if builtin.get(name) is not None:
        return f"{shorten(name)} is the name of a built-in method; choose another name"
    return ""


def standard_modules() -> frozenset[str]:
    """Return the names of the modules of the standard library."""
    if sys.version_info >= (3, 10):
        return sys.stdlib_module_names
    found = {each.partition(".")[0] for each in os.listdir(os.path.dirname(os.__file__))}
    return frozenset(found.union(sys.builtin_module_names))
