"""Type hints, docstrings and options of a user's methods, through real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from tests.mcp_client import meta
from tests.process.test_methods import env_for, write
from tests.support import SOURCE, daemon, request

HEAD = """
from __future__ import annotations
import dataclasses
from typing import Annotated, Any, Dict, List, NamedTuple, Optional, Set
from duet_rpc import method

@method
def good() -> int:
    return 1
"""


def ask(tmp_path: Path, text: str, *calls: tuple[str, object]) -> tuple[list[Any], str]:
    """Return results or errors, and the log."""
    path = write(tmp_path, HEAD + text)
    data = b"".join(request(number, *each) for number, each in enumerate(calls))
    with daemon([*SOURCE, "rpc", "--methods", str(path)], env_for(tmp_path)) as client:
        client.send(data)
        # Importing pydantic may take longer than the time that is left after the end of input.
        replies = [client.receive() for _ in calls]
        code, _, log = client.finish()
    assert code == 0
    assert "Traceback" not in log
    return [reply.get("result", reply.get("error")) for reply in replies], log


def tools_of(tmp_path: Path, text: str) -> tuple[dict[str, Any], str]:
    """Return the tools by name, and the log."""
    path = write(tmp_path, HEAD + text)
    command = [*SOURCE, "mcp", "--methods", str(path)]
    with daemon(command, env_for(tmp_path), framing="lines") as client:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta()}}
        client.send(json.dumps(message).encode() + b"\n")
        tools = client.receive()["result"]["tools"]
        log = client.finish()[2]
    return {each["name"]: each for each in tools}, log


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


# Other packages.

LIMITS = """
import annotated_types as at

@method
def f(
    count: Annotated[int, at.Interval(ge=1, lt=10)] = 1,
    names: Annotated[List[str], at.Len(1, 2)] = ["a"],
    word: at.LowerCase[str] = "a",
    step: Annotated[float, at.MultipleOf(0.5)] = 0.5,
    width: Annotated[float, at.Unit("m")] = 1.0,
) -> str:
    return "fine"

@method
def g(when: Annotated[str, at.Timezone(None)]) -> None: pass
"""


def test_annotated_limits_are_checked_and_in_the_schema(tmp_path: Path) -> None:
    pytest.importorskip("annotated_types")
    wrong: list[dict[str, object]] = [
        {"count": 0}, {"count": 10}, {"names": []}, {"names": ["", "", ""]}, {"word": "A"},
        {"step": 0.7},
    ]  # fmt: skip
    calls = [("f", each) for each in ({"count": 9, "word": "b", "width": 3.5}, *wrong)]
    (fine, *refused, document), log = ask(tmp_path, LIMITS, *calls, ("rpc.discover", None))
    assert fine == "fine"
    assert [each["data"]["expected"] for each in refused] == [
        "integer >= 1",
        "integer < 10",
        "array of string with at least 1 item",
        "array of string with at most 2 items",
        "string for which islower is true",
        "number that is a multiple of 0.5",
    ]
    schemas = {each["name"]: each["schema"] for each in document["methods"][-1]["params"]}
    assert schemas["count"] == {
        "type": "integer", "minimum": 1, "exclusiveMaximum": 10, "default": 1
    }  # fmt: skip
    assert (schemas["names"]["minItems"], schemas["names"]["maxItems"]) == (1, 2)
    assert "g: parameter when: Timezone of annotated_types can't be checked here" in log


MODELS = """
from datetime import date
from typing import Union
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, field_validator
from pydantic.dataclasses import dataclass

class Item(BaseModel):
    name: str
    price: Annotated[float, Field(gt=0)]
    due: Optional[date] = None
    tags: List[Union[int, Dict[str, int]]] = []

class Order(BaseModel, extra="forbid"):
    number: int = Field(alias="no", description="its number")
    items: List[Item]

    @field_validator("number")
    @classmethod
    def check(cls, value: int) -> int:
        if value == 13:
            raise ValueError("any number but 13")
        return value

class Node(BaseModel):
    value: int
    next: Optional[Node] = None

@dataclass
class Box:
    width: int

def even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number")
    return value

@method
def order(order: Order) -> Order:
    return order

@method
def orders(orders: List[Order]) -> int:
    return len(orders)

@method
def first(node: Node, count: Annotated[int, Field(ge=1, description="how many")] = 1) -> Node:
    return node

@method
def box(box: Box) -> Box:
    return box

@method
def half(number: Annotated[int, AfterValidator(even)]) -> int:
    return number // 2

@method
def name(name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=2)]) -> str:
    return name

@method
def maybe(box: Optional[Box]) -> bool:
    return box is None

@method
def lie(kind: int) -> Order:
    good = Order(no=1, items=[Item(name="a", price=1)])
    if kind == 1:
        good.items[0].price = "much"
    return [good, good, {"no": 1, "items": []}, {"no": 1}, 5][kind]

@method
def loose():
    return {"order": Order(no=1, items=[]), "box": Box(1)}

@dataclasses.dataclass
class Plain:
    x: int = Field(ge=1)

@method
def older(plain: Plain) -> int:
    return plain.x

@method
def old(x: int = Field(1, ge=0)) -> int:
    return x
"""


def test_models_of_pydantic_are_checked_and_described_by_pydantic(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    item = {"name": "a", "price": 1.5, "due": "2026-01-31", "tags": []}
    good = {"no": 1, "items": [item]}
    calls: list[tuple[str, object]] = [
        ("order", [good]),
        ("order", [{"no": "1", "items": []}]),
        ("order", [{"no": 1, "items": [item, {**item, "price": 0}]}]),
        ("order", [{"no": 13, "items": []}]),
        ("order", [{"items": []}]),
        ("order", [{"no": 1, "items": [], "more": 1}]),
        ("orders", [[good, {**good, "items": [{**item, "due": 5}]}]]),
        ("order", [{"no": 1, "items": [{**item, "tags": [1, {"a": None}]}]}]),
        ("first", [{"value": 1, "next": {"value": 2}}]),
        ("first", {"node": {"value": 1}, "count": 0}),
        ("box", [{"width": 1}]),
        ("box", [{"width": "1"}]),
        ("half", [4]),
        ("half", [3]),
        ("loose", None),
        *[("lie", [kind]) for kind in range(5)],
        ("rpc.discover", None),
    ]
    results, log = ask(tmp_path, MODELS, *calls)
    assert results[0] == good
    wrong = [(each["data"]["param"], each["data"]["expected"]) for each in results[1:7]]
    assert wrong == [
        ("order.no", "a valid integer"),
        ("order.items[1].price", "greater than 0"),
        ("order.no", "any number but 13"),
        ("order.no", "a value"),
        ("order.more", "no member of this name"),
        ("orders[1].items[0].due", "a valid date"),
    ]
    assert [each["data"]["received"] for each in results[1:6]] == [
        "string", "integer", "integer", "missing", "integer",
    ]  # fmt: skip
    assert results[7]["data"]["param"] == "order.items[0].tags[1].a", "without a Union's own tags"
    assert results[8] == {"value": 1, "next": {"value": 2, "next": None}}
    assert results[9]["data"]["expected"] == "integer >= 1"
    assert results[10] == {"width": 1}
    assert results[11]["data"]["param"] == "box.width"
    assert results[12] == 2
    assert results[13]["data"]["expected"] == "an even number"
    assert results[14] == {"order": {"no": 1, "items": []}, "box": {"width": 1}}
    assert results[15] == {"no": 1, "items": [{"name": "a", "price": 1.0, "due": None, "tags": []}]}
    assert results[16]["code"] == -32603
    assert ".items[0].price: expected a valid number, got string" in log
    assert results[17] == {"no": 1, "items": []}
    assert results[18]["code"] == results[19]["code"] == -32603
    assert ".items: expected a value, got missing" in log
    assert (
        "old: parameter x: a Field can't be a default here; write Annotated[..., Field(...)] ="
        in log
    )

    assert "older: parameter plain: Plain.x: a Field can't be a default here" in log

    document = results[-1]
    for method in document["methods"]:
        for param in [*method["params"], method["result"]]:
            Draft7Validator.check_schema({**param["schema"], "components": document["components"]})
    tools, _ = tools_of(tmp_path, MODELS)
    schema = tools["order"]["inputSchema"]
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate({"order": good})
    assert schema["properties"]["order"]["properties"]["no"]["description"] == "its number"
    Draft202012Validator(tools["order"]["outputSchema"]).validate(results[0])
    Draft202012Validator(tools["first"]["outputSchema"]).validate(results[8])
    assert tools["first"]["outputSchema"]["type"] == "object"
    count = tools["first"]["inputSchema"]["properties"]["count"]
    assert count == {"type": "integer", "minimum": 1, "default": 1, "description": "how many"}


def test_what_pydantic_says_reads_like_our_own_words(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    calls: list[tuple[str, object]] = [("name", [" ab "]), ("name", [" a "]), ("maybe", [5])]
    (stripped, short, wrong), _ = ask(tmp_path, MODELS, *calls)
    assert stripped == "ab"
    assert short["data"]["expected"] == "at least 2 characters"
    assert wrong["data"] == {"param": "box", "expected": "Box or null", "received": "integer"}


def test_nothing_is_imported_for_hints_that_nobody_uses(tmp_path: Path) -> None:
    text = (
        "import sys\n@method\ndef f(x: int, y: List[str] = []) -> list:\n"
        "    return [name for name in sys.modules if name.partition('.')[0] in\n"
        "        ('pydantic', 'annotated_types', 'docstring_parser', 'decimal', 'uuid')]\n"
    )
    assert ask(tmp_path, text, ("f", [1]))[0] == [[]]
