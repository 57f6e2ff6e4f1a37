"""What the text of a file shows of its methods, and when it may have others."""

from __future__ import annotations

from pathlib import Path

import pytest

from duet_rpc.workers.declared import Declared, declared_in

NOTHING_KNOWN = Declared(frozenset(), False)

FROM = "from duet_rpc import command, method, resource\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (FROM + "@method\ndef a(): ...\n@command\ndef b(): ...\n", {"a", "b"}),
        (FROM + "@method('a.b', title='x')\ndef c(): ...\n", {"a.b"}),
        (FROM + "@command(key='C-c w')\ndef d(): ...\n", {"d"}),
        (FROM + "@resource('notes://{name}')\ndef e(name): ...\n", {"e"}),
        (FROM + "@resource('notes://{name}', 'f.g')\ndef h(name): ...\n", {"f.g"}),
        (FROM + "@resource('notes://{name}', name='i')\ndef j(name): ...\n", {"i"}),
        ("import duet_rpc as d\n@d.method\nasync def k(): ...\n", {"k"}),
        (FROM + "import pandas, json\ndef helper(): ...\n", set()),
    ],
)
def test_decorators_show_the_names(tmp_path: Path, text: str, names: set[str]) -> None:
    file = tmp_path / "words.py"
    file.write_text(text)
    assert declared_in(str(file)) == Declared(frozenset(names), True)


@pytest.mark.parametrize(
    "text",
    [
        FROM + "method('a')(len)\n",
        FROM + "for name in 'ab':\n    method(name)(len)\n",
        FROM + "declare = method\n",
        "from duet_rpc import method as m\n@m\ndef a(): ...\n",
        "import shared\n",
        "def a(:\n",
        "x = " + "(" * 1000 + ")" * 1000,
        "\0",
        "",
    ],
)
def test_a_text_that_does_not_show_all_is_incomplete(tmp_path: Path, text: str) -> None:
    (tmp_path / "shared.py").write_text("")
    file = tmp_path / "words.py"
    file.write_text(text)
    assert declared_in(str(file)) == NOTHING_KNOWN


def test_a_file_that_is_not_there_may_have_anything(tmp_path: Path) -> None:
    assert declared_in(str(tmp_path / "no.py")) == NOTHING_KNOWN
