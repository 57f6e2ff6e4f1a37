"""`duet-rpc new` and `duet-rpc list`: a first file, and what is there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import SOURCE
from tests.terminal import Person, environment, invoke


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return environment(tmp_path / "home")


@pytest.fixture
def folder(env: dict[str, str]) -> Path:
    return Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"


# new


def test_a_new_file_runs_as_the_hint_says(env: dict[str, str], folder: Path) -> None:
    code, out, err = invoke(["new", "words"], env)
    path = folder / "words.py"
    assert (code, out) == (0, f"{path}\n"), "the path alone, for programs"
    hint, in_emacs = err.splitlines()
    words = hint.removeprefix("Try it: python -m duet_rpc ").split()
    assert invoke(words, env) == (0, '"words: 1, longest: hello"\n', "")
    assert in_emacs == "In Emacs, with (duet-rpc-mode 1): M-x words"
    assert invoke(["list"], env)[1] == (
        "~/.config/duet-rpc/methods/words.py\n"
        "  words(text: string, longest: integer = 2) -> string\n"
        "      Count the words of a text, and name the longest.\n"
        "      M-x words\n"
        "\n"
    )
    assert invoke(["doctor"], env)[1].count("1 loaded") == 1


def test_the_folder_is_the_one_that_is_read(env: dict[str, str], tmp_path: Path) -> None:
    env["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert invoke(["new", "words.py"], env)[1] == f"{tmp_path}/xdg/duet-rpc/methods/words.py\n"
    assert invoke(["call", "words", "text=a"], env)[1] == '"words: 1, longest: a"\n'


def test_on_a_terminal_the_new_file_is_opened(env: dict[str, str], folder: Path) -> None:
    for variables, shown in (
        ({"EDITOR": "grep -n return"}, 'return f"words: '),
        ({"EDITOR": "false", "VISUAL": "grep -n import"}, "from duet_rpc import Region"),
        ({"EDITOR": "/no/such"}, "cannot start the editor '/no/such'; set EDITOR"),
        ({"EDITOR": "'"}, "cannot start the editor"),
    ):
        with Person(["new", "words"], {**env, **variables}) as person:
            person.see(shown)
        (folder / "words.py").unlink()


def test_a_file_is_never_overwritten(env: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True)
    path = folder / "words.py"
    for make in (lambda: path.write_text("x = 1\n"), lambda: path.symlink_to("nowhere")):
        make()
        code, out, err = invoke(["new", "words"], env)
        assert (code, out) == (1, "")
        assert err.startswith(f"duet-rpc: {path} already exists and was left as it is; choose ")
        assert path.is_symlink() or path.read_text() == "x = 1\n"
        path.unlink()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "new needs a NAME"),
        (["a", "b"], "unexpected argument 'b' after new"),
        (
            ["my-words"],
            "'my-words' is not a name in Python; use letters, digits and _, such as my_",
        ),
        (["../evil"], "'../evil' is not a name in Python; use letters, digits and _, such as evil"),
        (["3"], "'3' is not a name in Python; use letters, digits and _\n"),
        (["größe"], "'größe' is not a name in Python"),
        (["a b"], "'a b' is not a name in Python; use letters, digits and _, such as a_b"),
        ([""], "'' is not a name"),
        (["_words"], "'_words': files whose names begin with _ are not loaded"),
        (["class"], "'class' is a keyword of Python"),
        (["json"], "'json' is the name of a module that others import"),
        (["sys"], "'sys' is the name of a module that others import"),
        (["duet_rpc"], "'duet_rpc' is the name of a module that others import"),
        (["version"], "'version' is the name of a built-in method"),
    ],
)
def test_a_name_that_would_not_work_is_refused(
    env: dict[str, str], folder: Path, words: list[str], message: str
) -> None:
    code, out, err = invoke(["new", *words], env)
    assert (code, out) == (2, "")
    assert err.startswith(f"duet-rpc: {message}")
    assert not folder.exists()


def test_without_a_place_to_write_it_says_so(env: dict[str, str], folder: Path) -> None:
    code, _, err = invoke(["new", "words"], {**env, "HOME": ""})
    assert (code, err) == (1, "duet-rpc: no home directory for the folder of your methods; "
                           "set HOME\n")  # fmt: skip
    folder.parent.parent.mkdir()
    folder.parent.write_text("")
    code, _, err = invoke(["new", "words"], env)
    assert code == 1
    assert err == f"duet-rpc: cannot write {folder / 'words.py'}: Not a directory\n"


# list

WORDS = '''
from duet_rpc import method

print("loading")

@method
def word_count(text: str, top: int = 10) -> dict:
    """Count the words of a text.

    In any language.
    """

@method("text.shout")
def shout(text: str) -> str: ...
'''


def test_without_methods_it_says_how_to_begin(env: dict[str, str]) -> None:
    hint = "no methods of yours yet; `python -m duet_rpc new NAME` writes a first file\n"
    assert invoke(["list"], env) == (0, hint, "")
    assert json.loads(invoke(["list", "--json"], env)[1]) == {"methods": [], "problems": []}


def test_methods_are_listed_by_file_with_what_is_wrong(
    env: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "words.py").write_text(WORDS)
    (folder / "bad.py").write_text("x = 1\ny = (\n")
    other = tmp_path / "other.py"
    other.write_text("from duet_rpc import method\n@method\ndef other() -> None: ...\n")
    code, out, err = invoke(["list", "--methods", str(other)], env)
    assert (code, err) == (0, "")
    assert out.startswith(
        f"{other}\n"
        "  other() -> null\n"
        "\n"
        "~/.config/duet-rpc/methods/words.py\n"
        "  word_count(text: string, top: integer = 10) -> object\n"
        "      Count the words of a text.\n"
        "  text.shout(text: string) -> string\n"
        "\n"
        "could not be loaded: bad.py:2: SyntaxError"
    )
    assert len(out.splitlines()) == 9


def test_all_adds_the_built_in_methods_at_the_end(env: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "words.py").write_text(WORDS)
    out = invoke(["list", "--all"], env)[1]
    assert out.index("text.shout") < out.index("\nbuilt in\n") < out.index("setLogLevel(level")
    assert "initialize" not in invoke(["list"], env)[1]
    names = [
        each["name"] for each in json.loads(invoke(["list", "--all", "--json"], env)[1])["methods"]
    ]
    assert names[:3] == ["word_count", "text.shout", "initialize"]


def test_programs_get_the_same_as_json(env: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "words.py").write_text(WORDS)
    code, out, err = invoke(["list", "--json"], env)
    assert (code, err) == (0, "")
    first = json.loads(out)["methods"][0]
    assert first == {
        "name": "word_count",
        "signature": "word_count(text: string, top: integer = 10) -> object",
        "summary": "Count the words of a text.",
        "file": str(folder / "words.py"),
        "line": 6,
    }


def test_colour_is_for_terminals(env: dict[str, str]) -> None:
    invoke(["new", "words"], env)
    assert "\x1b" not in invoke(["list"], env)[1]
    with Person(["list"], env) as person:
        assert person.leave() == 0
        assert "\x1b[34mwords\x1b[0m(text: string" in person.raw
    with Person(["list", "--no-color"], env) as person:
        person.leave()
        assert "\x1b" not in person.raw


def test_a_file_that_ends_the_process_is_reported(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text("import os, sys\nsys.stderr.write('no licence\\n')\nos._exit(3)\n")
    code, out, err = invoke(["list", "--methods", str(file)], env)
    assert (code, out) == (1, "")
    assert err == "duet-rpc: the daemon exited with code 3 before it answered: no licence\n"


def test_a_project_that_is_not_trusted_is_named(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".duet-rpc.toml").write_text('[methods]\nload = ["mine.py"]\n')
    code, _, err = invoke(["list"], env, cwd=tmp_path)
    assert code == 0
    assert err.count("is skipped: the file is not trusted") == 1


def test_it_also_works_without_stdout(env: dict[str, str]) -> None:
    command = ["sh", "-c", f"exec {' '.join(SOURCE)} list >&-"]
    assert invoke([], env, None, command, cwd=Path(os.sep)) == (0, "", "")
