"""Type hints, docstrings and options of a user's methods, through real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from tests.hints import ask, tools_of

# What is refused costs its own method.

REFUSED = {
    "a title that is no text": (
        "@method(title=object())\ndef f(): pass\n",
        "words.py:10: f: title must be a string",
    ),
    "a title that raises": (
        "class Odd:\n    def __repr__(self): 1 / 0\n    __str__ = __repr__\n"
        "@method(title=Odd())\ndef f(): pass\n",
        "words.py:13: f: title must be a string",
    ),
    "an option that is neither": (
        "@method(read_only='yes')\ndef f(): pass\n",
        "words.py:10: f: read_only must be True or False",
    ),
    "another": (
        "@method(open_world=[])\ndef f(): pass\n",
        "words.py:10: f: open_world must be True or False",
    ),
    "a method of a class": (
        "class Words:\n    @method\n    def f(self): pass\n",
        "words.py:11: f: `@method` is for functions, not for methods of a class; move it out",
    ),
    "a static method": (
        "class Words:\n    @method\n    @staticmethod\n    def f(): pass\n",
        "words.py:11: f: `@method` is for functions, not for methods of a class",
    ),
    "a class method": (
        "class Words:\n    @method('f')\n    @classmethod\n    def f(cls): pass\n",
        "words.py:11: f: `@method` is for functions, not for methods of a class",
    ),
    "a name that raises": (
        "class Name(str):\n    def __eq__(self, other): 1 / 0\n"
        "    isprintable = __hash__ = __eq__\n"
        "@method(Name('a\\x07'))\ndef f(): pass\n",
        "words.py:13: 'a\\x07': a name is a text of characters that can be seen",
    ),
    "something without a name": (
        "import functools\nmethod(functools.partial(print, 1))\n",
        "None: a name is a text of characters that can be seen",
    ),
    "a hint": (
        "@method\ndef f(x: complex): pass\n",
        "words.py:10: f: parameter x: the hint complex has no form in JSON",
    ),
    "a hint inside a record": (
        "@dataclasses.dataclass\nclass A:\n    b: List[complex]\n@method\ndef f(x: A): pass\n",
        "words.py:13: f: parameter x: A.b: the hint complex has no form in JSON",
    ),
    "a hint of a record that can't be read": (
        "@dataclasses.dataclass\nclass A:\n    b: Wat\n@method\ndef f() -> A: pass\n",
        "words.py:13: f: the result: A: a type hint can't be read: name 'Wat' is not defined",
    ),
    "a limit that means nothing": (
        "class Ge:\n    ge = 1\n@method\ndef f(x: Annotated[str, Ge()]): pass\n",
        "words.py:12: f: parameter x: the limit ge has no meaning for string",
    ),
    "an extra that raises": (
        "class Odd:\n    def __getattr__(self, name): 1 / 0\n"
        "@method\ndef f(x: Annotated[str, Odd()]): pass\n",
        "words.py:12: f: ZeroDivisionError",
    ),
    "a function that wraps itself": (
        "@method\ndef f(): pass\nf.__wrapped__ = f\n",
        "f: f: its parameters can't be read: wrapper loop",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_an_unsupported_hint_costs_one_method_and_names_its_line(tmp_path: Path, kind: str) -> None:
    text, words = REFUSED[kind]
    lists = [(name, None) for name in ("listMethods", "describeMethods", "rpc.discover")]
    results, log = ask(tmp_path, text, *lists, ("good", None))
    assert "a method could not be loaded: " in log
    assert words in log
    names = [[each["name"] for each in listed] for listed in results[:2]]
    names.append([each["name"] for each in results[2]["methods"]])
    for each in names:
        assert "good" in each
        assert "f" not in each
    assert results[3] == 1
    tools, log = tools_of(tmp_path, text)
    assert [*tools] == ["good"]
    assert words in log


def test_a_method_of_an_object_may_be_registered(tmp_path: Path) -> None:
    text = (
        "class Words:\n    def count(self, text: str) -> int: return len(text.split())\n"
        "method('count')(Words().count)\n"
    )
    assert ask(tmp_path, text, ("count", ["a b"]))[0] == [2]


def test_a_default_keeps_the_value_it_had_at_loading(tmp_path: Path) -> None:
    text = (
        "kept = [1]\n@method\ndef f(x: list = kept) -> int:\n"
        "    kept.append(object())\n    return len(kept)\n"
    )
    lists = [(name, None) for name in ("listMethods", "describeMethods", "rpc.discover")]
    results, _ = ask(tmp_path, text, ("f", None), *lists)
    assert results[0] == 2
    assert results[2][-1] == {"name": "f", "params": ["x: array = [1]"], "returns": "integer"}
    assert results[3]["methods"][-1]["params"][0]["schema"] == {"type": "array", "default": [1]}
    assert tools_of(tmp_path, text)[0]["f"]["inputSchema"]["properties"]["x"]["default"] == [1]


def test_a_default_is_shown_in_the_form_callers_write(tmp_path: Path) -> None:
    text = (
        "import datetime, pathlib\n@method\n"
        "def f(a: pathlib.Path = pathlib.Path('x'), b: Any = datetime.timedelta(1),"
        " c: Any = print) -> None: pass\n"
    )
    (described,), _ = ask(tmp_path, text, ("describeMethods", None))
    assert described[-1]["params"] == ['a: path = "x"', 'b: any = "P1D"', "c: any = ..."]


# Parameters.


def test_a_record_refuses_its_values_in_its_own_words(tmp_path: Path) -> None:
    text = (
        "@dataclasses.dataclass\nclass A:\n    b: int\n    def __post_init__(self):\n"
        "        if self.b == 0: raise ValueError('b that is not 0')\n"
        "        if self.b == 1: raise TypeError('b other than 1')\n"
        "        if self.b == 2: raise KeyError(self.b)\n"
        "@method\ndef f(items: List[A]) -> int: return items[0].b\n"
    )
    calls = [("f", [[{"b": 5}, {"b": number}]]) for number in range(4)]
    (zero, one, two, three), log = ask(tmp_path, text, *calls)
    assert zero["code"] == one["code"] == -32602
    assert zero["data"] == {
        "param": "items[1]",
        "expected": "b that is not 0",
        "received": "object",
    }
    assert one["data"]["expected"] == "b other than 1"
    assert two == {"code": -32603, "message": "Internal error"}
    assert "KeyError (words.py:16 in __post_init__)" in log
    assert three == 5


def test_a_home_directory_is_expanded(tmp_path: Path) -> None:
    text = "from pathlib import Path\n@method\ndef f(x: Path) -> Path: return x\n"
    (found, document), _ = ask(tmp_path, text, ("f", ["~/a"]), ("rpc.discover", None))
    assert found == str(tmp_path / "home" / "a")
    schema = document["methods"][-1]["params"][0]["schema"]
    assert schema == {"type": "string", "format": "path"}


RECURSIVE = """
@dataclasses.dataclass
class Tree:
    name: str
    branches: List[Tree] = dataclasses.field(default_factory=list)

@method
def grow(tree: Tree, more: Optional[Tree] = None) -> Tree:
    return Tree("root", [tree])

def other():
    @dataclasses.dataclass
    class Tree:
        kind: int
        next: Any
    Tree.__annotations__["next"] = Optional[Tree]
    Tree.__annotations__["kind"] = int

    def cut(tree) -> None: pass
    cut.__annotations__["tree"] = Tree
    method("cut")(cut)

other()
"""


def test_types_that_contain_themselves_are_defined_once_in_each_document(tmp_path: Path) -> None:
    tree = {"name": "a", "branches": [{"name": "b", "branches": []}]}
    wrong = {"name": "a", "branches": [{"name": 1}]}
    (grown, refused, document), _ = ask(
        tmp_path, RECURSIVE, ("grow", [tree]), ("grow", [wrong]), ("rpc.discover", None)
    )
    assert grown == {"name": "root", "branches": [tree]}
    assert refused["data"]["param"] == "tree.branches[0].name"
    assert set(document["components"]["schemas"]) == {"Tree", "Tree_2"}
    for method in document["methods"]:
        for param in [*method["params"], method["result"]]:
            assert "$defs" not in json.dumps(param)
            # A reference is one into the whole document.
            whole = {**param["schema"], "components": document["components"]}
            Draft7Validator.check_schema(whole)
            if param["name"] == "tree" and method["name"] == "grow":
                assert Draft7Validator(whole).is_valid(tree)
                assert not Draft7Validator(whole).is_valid(wrong)
    tools, _ = tools_of(tmp_path, RECURSIVE)
    schema = tools["grow"]["inputSchema"]
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid({"tree": tree, "more": None})
    assert not Draft202012Validator(schema).is_valid({"tree": wrong})
    Draft202012Validator(tools["grow"]["outputSchema"]).validate(grown)


# Results.

LIES = """
@dataclasses.dataclass
class Item:
    name: str

@dataclasses.dataclass
class Items:
    items: List[Item]

@method
def lie(deep: bool = True) -> Items:
    return Items([Item("a"), Item(5)]) if deep else 5

@method
def by_key() -> Dict[str, int]:
    return {"a secret": "x"}

@method
def free():
    return {"a": {1}}
"""


def test_the_log_says_where_a_result_is_wrong(tmp_path: Path) -> None:
    (deep, flat, by_key, free), log = ask(
        tmp_path, LIES, ("lie", None), ("lie", [False]), ("by_key", None), ("free", None)
    )
    assert deep == flat == by_key == {"code": -32603, "message": "Internal error"}
    place = "BadResult: returned by words.py:"
    assert f"{place}19: .items[1].name: expected string, got integer\n" in log
    assert f"{place}19: expected object, got integer\n" in log
    assert f"{place}23: [*]: expected integer, got string\n" in log
    assert "a secret" not in log
    assert free == {"a": [1]}, "without a hint there is no check"


# Docstrings.

STYLES = {
    "google": """
    Args:
        text: The text.
            It may be long.
        top (int, optional): How many.
        own: What the hint says better.

    Returns:
        The counts.

    Raises:
        ValueError: Never.
    """,
    "numpy": """
    Parameters
    ----------
    text : str
        The text.
        It may be long.
    top : int, optional
        How many.

    Returns
    -------
    dict
        The counts.
    """,
    "sphinx": """
    :param text: The text.
        It may be long.
    :param int top: How many.
    :returns: The counts.
    :raises ValueError: Never.
    """,
}


@pytest.mark.parametrize("style", STYLES)
def test_sections_of_a_docstring_describe_the_parameters(tmp_path: Path, style: str) -> None:
    text = (
        '@method\ndef f(text: str, top: int = 1, *, own: Annotated[int, "of its own"]) -> None:\n'
        '    """Count the words.\n\n    Example:\n        f("a b")\n\n    The longer story.\n'
        f'{STYLES[style]}"""\n'
    )
    (document, listed), _ = ask(tmp_path, text, ("rpc.discover", None), ("listMethods", None))
    assert listed[-1] == {"name": "f", "description": "Count the words."}
    said = {each["name"]: each["schema"] for each in document["methods"][-1]["params"]}
    assert said == {
        "text": {"type": "string", "description": "The text.\nIt may be long."},
        "top": {"type": "integer", "default": 1, "description": "How many."},
        "own": {"type": "integer", "description": "of its own"},
    }
    tool = tools_of(tmp_path, text)[0]["f"]
    assert tool["description"] == (
        'Count the words.\n\nExample:\n    f("a b")\n\nThe longer story.'
    )
    assert tool["inputSchema"]["properties"] == said
    assert [*tool["inputSchema"]["properties"]] == ["text", "own", "top"], "required ones first"
    assert tool["inputSchema"]["required"] == ["text", "own"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("word_count", "Word count"),
        ("text.wordCount", "Text word count"),
        ("parseHTML5", "Parse HTML5"),
        ("été", "Été"),
        ("_", "_"),
    ],
)
def test_a_tool_without_a_docstring_is_described_by_its_name(
    tmp_path: Path, name: str, words: str
) -> None:
    tools, _ = tools_of(tmp_path, f"@method({name!r})\ndef f(): pass\n")
    assert [*tools.values()][-1]["description"] == words


@pytest.mark.parametrize(
    "docstring",
    ["Args:\n", "Note: one.\nExample:\n    two\n\nthree", ":param", "Parameters\n---\nx", "a\n\n-"],
)
def test_a_docstring_in_no_style_is_all_text(tmp_path: Path, docstring: str) -> None:
    text = f"@method\ndef f(x: int) -> None: pass\nf.__doc__ = {docstring!r}\n"
    # It is read when it is registered.
    text = text.replace("@method\n", "") + "method(f)\n"
    tool = tools_of(tmp_path, text)[0]["f"]
    assert tool["description"] == docstring.strip()
    assert tool["inputSchema"]["properties"] == {"x": {"type": "integer"}}


# Imports.


def test_nothing_is_imported_for_hints_that_nobody_uses(tmp_path: Path) -> None:
    text = (
        "import sys\n@method\ndef f(x: int, y: List[str] = []) -> list:\n"
        "    return [name for name in sys.modules if name.partition('.')[0] in\n"
        "        ('pydantic', 'annotated_types', 'docstring_parser', 'decimal', 'uuid')]\n"
    )
    assert ask(tmp_path, text, ("f", [1]))[0] == [[]]
