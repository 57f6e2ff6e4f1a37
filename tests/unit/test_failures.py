"""What is said of an exception, however hostile it is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from duet_rpc.failures import SafeText, describe, missing_module, say_what

HERE = os.path.basename(__file__)
SECRET = "sk-0123456789-secret"  # noqa: S105


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def touched(*_: object) -> object:
    raise AssertionError("its code was run")


def hostile_types() -> dict[str, type[BaseException]]:
    """Make exceptions with traps for attributes; not at the top, where pytest looks at them."""

    class Hostile(Exception):
        __str__ = __repr__ = __format__ = __hash__ = __eq__ = touched  # type: ignore[assignment]
        __getattribute__ = touched
        __traceback__ = __class__ = property(touched)
        filename = msg = name = lineno = args = property(touched)

    class Meta(type):
        __name__ = __module__ = __mro__ = property(touched)
        __getattribute__ = __str__ = __repr__ = touched  # type: ignore[assignment]

    class Odd(Exception, metaclass=Meta):
        pass

    class OddSyntax(SyntaxError):
        msg = filename = lineno = text = property(touched)

    class OddImport(ModuleNotFoundError):
        name = msg = path = property(touched)

    return {"Hostile": Hostile, "Odd": Odd, "OddSyntax": OddSyntax, "OddImport": OddImport}


@pytest.mark.parametrize("name", ["Hostile", "Odd", "OddSyntax", "OddImport"])
def test_no_code_of_an_exception_is_run(name: str) -> None:
    kind = hostile_types()[name]
    try:
        raise kind
    except BaseException as error:  # noqa: BLE001
        said, what, module = describe(error), say_what(error), missing_module(error)
    assert said.startswith(f"{name} ({HERE}:")
    assert said.endswith(" in test_no_code_of_an_exception_is_run)")
    assert what.split(":")[0] == name
    assert module is None


def test_a_name_of_a_str_subclass_is_text() -> None:
    class Name(str):
        __slots__ = ()
        __str__ = __format__ = touched  # type: ignore[assignment]

    kind = type("Plain", (Exception,), {})
    kind.__name__ = Name("Other")
    assert describe(kind()) == "Other"


def test_the_text_is_never_said() -> None:
    for error in (ValueError(SECRET), KeyError(SECRET), OSError(2, SECRET, f"/home/{SECRET}")):
        assert SECRET not in describe(error)
        assert SECRET not in say_what(error)


def test_words_of_our_own_are_said() -> None:
    class Ours(SafeText):
        pass

    assert describe(Ours("a set has no form in JSON")) == "Ours: a set has no form in JSON"


def test_the_place_is_in_the_user_s_file(tmp_path: Path) -> None:
    error = caught(lambda: json.loads("{"))
    assert f"({HERE}:" in describe(error)
    path = tmp_path / "words.py"
    path.write_text("import json\ndef f():\n    g()\ndef g():\n    json.loads('{')\n")
    space: dict[str, Callable[[], object]] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)  # noqa: S102
    assert describe(caught(space["f"])) == "JSONDecodeError (words.py:5 in g)"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["/x/duet_rpc/server.py", "/u/words.py", "/x/site-packages/p.py"], "words.py"),
        (["OURS/server.py", "/x/site-packages/p.py", "LIB/json.py"], "p.py"),
        (["OURS/server.py", "LIB/json.py", "<frozen x>"], "server.py"),
        (["LIB/threading.py", "<string>"], "<string>"),
        (["LIB/threading.py", "/u/a.py", "/u/b.py", "OURS/context.py"], "b.py"),
    ],
)
def test_of_several_files_the_author_s_comes_first(files: list[str], expected: str) -> None:
    import duet_rpc

    places = {"OURS": os.path.dirname(duet_rpc.__file__), "LIB": os.path.dirname(os.__file__)}
    function: Callable[[], object] = lambda: 1 / 0  # noqa: E731
    for file in reversed(files):
        where, slash, rest = file.partition("/")
        name = places.get(where, where) + slash + rest
        space = {"inner": function}
        exec(compile("def call(): inner()", name, "exec"), space)  # noqa: S102
        function = space["call"]
    error = caught(function).with_traceback(None)
    # Without the frames of this test, which are a user's too.
    trace = caught(function).__traceback__
    while trace is not None and trace.tb_frame.f_code.co_name != "call":
        trace = trace.tb_next
    depth = trace
    for _ in files[1:]:
        assert depth is not None
        depth = depth.tb_next
    assert depth is not None
    depth.tb_next = None
    assert f"({os.path.basename(expected)}:1 in call)" in describe(error.with_traceback(trace))


def test_deep_in_a_recursion_something_is_said() -> None:
    def deeper() -> None:
        try:
            deeper()
        except RecursionError as error:
            said.append(describe(error))
            raise

    said: list[str] = []
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        caught(deeper)
    finally:
        sys.setrecursionlimit(limit)
    assert all("exception" in each or "RecursionError" in each for each in said)


@pytest.mark.parametrize("name", ["x; rm -rf /", "a b", "", "a..b", "\x1b[31m"])
def test_a_module_s_name_is_one_that_can_be_imported(name: str) -> None:
    assert missing_module(ModuleNotFoundError(SECRET, name=name)) is None
    assert missing_module(ModuleNotFoundError(SECRET, name="pandas.core")) == "pandas.core"
