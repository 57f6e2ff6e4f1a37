"""The block of PEP 723, and the ranges of versions in it."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from duet_rpc.environments.pythons import allows
from duet_rpc.environments.requirements import EnvironmentFailure, Requirements
from duet_rpc.environments.script import BlockError, find_block, read, why_ignored
from duet_rpc.environments.store import key_of

BLOCK = """\
'''Words.'''
# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "pandas>=2",  # tables
#
#   "requests",
# ]
#
# [tool.other]
# key = 1
# ///
import pandas
"""


def test_what_a_block_asks_for() -> None:
    expected = Requirements(">=3.10", ("pandas>=2", "requests"))
    assert read(BLOCK, "words.py") == expected
    assert read(BLOCK.replace("\n", "\r\n"), "words.py") == expected
    assert find_block(BLOCK) is not None


# The one in the PEP, except that a block may be empty.
PEP = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)*)^# ///$"
LINES = ["# /// script", "# /// other", "# ///", "#", "# a = 1", "x = 1", "", "# /// ", "#x"]


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_blocks_are_those_of_the_pep(lines: list[str]) -> None:
    text = "\n".join(lines)
    expected = [
        "".join(line[2:] + "\n" for line in match["content"].splitlines())
        for match in re.finditer(PEP, text)
        if match["type"] == "script"
    ]
    assert find_block(text) == (expected[0] if expected else None)


CLOSE = "it must end with a line `# ///`, and each line up to there must begin with `# `"
OPEN = "the block must open with `# /// script`, in exactly this form"
IGNORED = {
    "no end": ("# /// script\n# dependencies = []\nimport x\n", (1, CLOSE)),
    "an empty line in it": ("x = 1\n# /// script\n\n# ///\n", (2, CLOSE)),
    "a line without its space": ("# /// script\n#a = 1\n# ///\n", (1, CLOSE)),
    "a space after its end": ("# /// script\n# /// \n", (1, CLOSE)),
    "a space after its opening": ("# /// script \n# ///\n", (1, OPEN)),
    "an opening without its space": ("#/// script\n# ///\n", (1, OPEN)),
}


@pytest.mark.parametrize("what", IGNORED)
def test_an_ignored_block_is_named_with_its_line(what: str) -> None:
    text, expected = IGNORED[what]
    assert find_block(text) is None
    assert why_ignored(text) == expected
    assert why_ignored(text.replace("\n", "\r\n")) == expected


@pytest.mark.parametrize("text", [BLOCK, "", "# /// other\n", "x = 1  # /// script\n"])
def test_no_other_comment_is_called_an_ignored_block(text: str) -> None:
    assert why_ignored(text) is None


def test_openings_without_an_end_take_linear_time() -> None:
    started = time.process_time()
    assert find_block("# /// script\n" * 80_000) is None
    assert time.process_time() - started < 5  # it takes 0.1 s, and took minutes


@pytest.mark.parametrize("toml", ["x = " + "[" * 5000, "a" + ".a" * 30_000 + " = 1"])
def test_a_block_that_is_nested_too_deeply_is_refused(toml: str) -> None:
    with pytest.raises(BlockError, match=r"words.py:2: .*nested too deeply: at most 32"):
        read(f"# /// script\n# {toml}\n# ///\n", "words.py")


@pytest.mark.parametrize(
    "block",
    [
        "# /// script\n# ///\n",
        "# /// script\n#\n# ///",
        "import x\n# /// script\n# dependencies = []\n# ///\n# more\n",
        "# /// other\n# x\n# ///\n\n# /// script\n# ///\n",
    ],
)
def test_an_empty_block_asks_for_nothing(block: str) -> None:
    assert find_block(block) is not None
    assert read(block, "words.py") == Requirements()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import os\n",
        "# /// other\n# dependencies = 1\n# ///\n",
        "# /// script\n# dependencies = []\n",  # not closed: the PEP has it ignored
        "# /// script\n#dependencies = []\n# ///\n",  # no space
        "# /// script\nx = 1\n# ///\n",
        " # /// script\n # ///\n",
        "# /// scripts\n# ///\n",
    ],
)
def test_what_is_no_block(text: str) -> None:
    assert find_block(text) is None
    assert read(text, "words.py") is None


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            "\n# /// script\n# ///\n\n# /// script\n# ///\n",
            "words.py:5: a second `# /// script` block; the first is on line 2. Remove one of them",
        ),
        (
            "# /// script\n# dependencies = [\n# 'a' 'b']\n# ///\n",
            "words.py:3: the `# /// script` block is not valid TOML: Unclosed array",
        ),
        (
            "# /// script\n#\n# dependencies = 'pandas'\n# ///\n",
            'words.py:3: dependencies must be a list of strings, such as ["pandas>=2", "requests"]',
        ),
        (
            "# /// script\n# dependencies = ['a', 1]\n# ///\n",
            'words.py:2: dependencies must be a list of strings, such as ["pandas>=2", "requests"]',
        ),
        (
            "# /// script\n# dependencies = []\n# requires-python = 3.10\n# ///\n",
            'words.py:3: requires-python must be a string, such as ">=3.10"',
        ),
        (
            "# /// script\n# dependency = ['a']\n# ///\n",
            "words.py:2: unknown key 'dependency' in the `# /// script` block; "
            "did you mean 'dependencies'?",
        ),
    ],
)
def test_a_wrong_block_is_reported_with_its_line(block: str, message: str) -> None:
    assert find_block(block) is not None
    with pytest.raises(BlockError) as caught:
        read(block, "words.py")
    assert str(caught.value) == message


def test_looking_for_a_block_imports_little() -> None:
    code = (
        "import sys, re, typing; import duet_rpc; before = set(sys.modules)\n"
        "from duet_rpc.environments.script import find_block\n"
        f"assert find_block({BLOCK!r})\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["duet_rpc.environments", "duet_rpc.environments.script"]


# Ranges of versions.

NUMBERS = st.lists(st.integers(0, 15), min_size=1, max_size=3)
PARTS = st.builds(
    lambda sign, numbers: f"{sign}{'.'.join(map(str, [3, *numbers][:3]))}",
    st.sampled_from([">=", "<=", ">", "<", "==", "!=", "~="]),
    NUMBERS,
)


@given(st.lists(PARTS, max_size=3), st.integers(9, 15), st.integers(0, 15))
def test_ranges_read_without_packaging_mean_the_same(
    parts: list[str], minor: int, micro: int
) -> None:
    text = ", ".join(parts)
    expected = SpecifierSet(text).contains(f"3.{minor}.{micro}")
    assert allows(text, (3, minor, micro)) == expected


def test_no_range_allows_a_python_that_cannot_run_duet_rpc() -> None:
    assert not allows(None, (3, 8, 18))
    assert not allows("<3.9", (3, 8, 18))
    assert allows(None, (3, 9, 0))
    with pytest.raises(EnvironmentFailure, match=r"not a range of versions: '3.10'"):
        allows("3.10", (3, 10, 0))


# Keys.


def test_one_environment_for_all_spellings_of_the_same() -> None:
    first = key_of(Requirements(">=3.9, <4", ("Typing_Extensions >= 4", "humanize")), None)
    second = key_of(Requirements(">=3.9,<4", ("humanize", "typing-extensions>=4")), None)
    assert first == second
    others = [
        key_of(Requirements(">=3.9", ("humanize", "typing-extensions>=4")), None),
        key_of(Requirements(">=3.9,<4", ("humanize", "typing-extensions>=5")), None),
        key_of(Requirements(">=3.9,<4", ("humanize",)), None),
        key_of(Requirements(">=3.9,<4", ("humanize", "typing-extensions>=4")), "/usr/bin/python3"),
    ]
    assert len({first, *others}) == 5
