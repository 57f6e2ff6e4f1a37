"""A Python function, turned into a `Method`: its signature says all there is to say."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable

from duet_rpc.jsonrpc.jsontext import loads, make_encoder
from duet_rpc.methods.commands import Source
from duet_rpc.methods.context import Context
from duet_rpc.methods.declare import OPTIONS
from duet_rpc.methods.method import Method, Param
from duet_rpc.methods.schema import Shape, Unsupported, shape_of, to_plain
from duet_rpc.methods.schema.hints import UNIONS
from duet_rpc.methods.schema.records import FIELD_AS_DEFAULT, read_hints
from duet_rpc.methods.schema.shape import ANY, anything
from duet_rpc.methods.stream import Pieces

if TYPE_CHECKING:
    from duet_rpc.methods.declare import Declaration
    from duet_rpc.methods.method import Offer

ENCODE = make_encoder(to_plain)


def method_of(declaration: Declaration, name: str) -> Method:
    """Describe what `@method` has seen; raise `Unsupported` where that is not possible."""
    _refuse_class_body(declaration)
    title = declaration.title
    if title is not None and not isinstance(title, str):
        raise Unsupported("title must be a string")
    hints: dict[str, bool] = {}
    for option, value in declaration.options.items():
        if not isinstance(value, bool):
            raise Unsupported(f"{option} must be True or False")
        hints[OPTIONS[option]] = value
    method = method_from(declaration.function, name)
    method.title = None if title is None else str.__str__(title)
    method.hints = hints
    if declaration.command is not None:
        from duet_rpc.methods.command_options import read_options

        method.command = read_options(declaration.command, declaration.function)
    if declaration.offer is not None:
        method.offer = _offer(declaration.offer, declaration.function, method)
    return method


def _offer(given: dict[str, object], function: Any, method: Method) -> Offer:
    from duet_rpc.methods.offer_options import read_prompt, read_resource

    if "uri" in given:
        return read_resource(method, given["uri"], given["mime"])
    return read_prompt(read_hints(function).get("return", Any))


def _refuse_class_body(declaration: Declaration) -> None:
    function, outer = declaration.function, ""
    if isinstance(function, types.FunctionType):
        outer = function.__qualname__.rpartition(".")[0]
    if isinstance(function, (staticmethod, classmethod)) or (
        outer and not outer.endswith("<locals>")
    ):
        word = declaration.word
        given = '"words://all", "name"' if word == "resource" else '"name"'
        raise Unsupported(
            f"`@{word}` is for functions, not for methods of a class; move it out of the class, or "
            f"register the method of an object: `{word}({given})(Words().count)`"
        )


def method_from(function: Callable[..., object], name: str) -> Method:
    """Describe a function; raise `Unsupported` where its signature has no form in JSON."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise Unsupported("an `async def` is not awaited here; let a `def` call asyncio.run")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:  # some functions in C say nothing of themselves
        raise Unsupported(f"its parameters can't be read: {error}") from None
    hints = read_hints(function)
    params: dict[str, Param] = {}
    context: str | None = None
    positional = {}
    for parameter in parameters.values():
        hint = hints.get(parameter.name, Any)
        # `ctx: Context = None` is Optional[Context] before Python 3.11.
        if hint is Context or Context in typing.get_args(hint):
            if context is not None:
                both = f"parameters {context} and {parameter.name}"
                raise Unsupported(f"{both} are both a Context; one is enough")
            context = parameter.name
        else:
            params[parameter.name] = _param(parameter, hint)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional[parameter.name] = parameter.default
    returns = ANY
    streams = inspect.isgeneratorfunction(function) or is_iterator(hints.get("return"))
    if "return" in hints:
        hint = piece_of(hints["return"]) if streams else hints["return"]
        returns = _shape(hint, "the result", is_result=True)
    method = Method(
        name,
        inspect.getdoc(function) or "",
        _by_name(function, positional) if positional else function,
        params=params,
        label=f"stream of {returns.name}" if streams else returns.name,
        returns=_collected(returns) if streams else returns.schema,
    )
    method.streams = _pieces(returns) if streams else None
    method.context = context
    method.encode = _encoder(returns)
    method.source = source_of(function)
    return method


def is_iterator(hint: object) -> bool:
    """Return True for the hint of a function that returns its result piece by piece."""
    return (typing.get_origin(hint) or hint) in (
        collections.abc.Iterator,
        collections.abc.Generator,
    )


def piece_of(hint: object) -> object:
    """Return the hint of one piece, in the hint of a generator method."""
    if not is_iterator(hint) and typing.get_origin(hint) is not collections.abc.Iterable:
        raise Unsupported(
            "the result: a function with `yield` returns an iterator; write -> Iterator[str]"
        )
    return next(iter(typing.get_args(hint)), Any)


def _pieces(piece: Shape) -> Pieces:
    if piece is ANY:
        return Pieces.ANY
    return Pieces.TEXT if piece.name == "string" else Pieces.VALUES


def _collected(piece: Shape) -> dict[str, object]:
    """Describe the result for a caller that does not want it piece by piece."""
    if _pieces(piece) is not Pieces.VALUES:
        return piece.schema
    items = {name: each for name, each in piece.schema.items() if name != "$defs"}
    definitions = {name: each for name, each in piece.schema.items() if name == "$defs"}
    return {"type": "array", "items": items, **definitions}


def _encoder(returns: Shape) -> Callable[[object], str]:
    """Return the function that checks a result against its hint and writes it."""
    dump = returns.dump
    return ENCODE if dump is anything else lambda value: ENCODE(dump(value))


def source_of(function: Callable[..., object]) -> tuple[str, int] | None:
    """Return file and line of a function that is written in Python."""
    try:
        inner: Any = getattr(function, "__func__", function)
        code = getattr(inspect.unwrap(inner), "__code__", None)
    except Exception:  # noqa: BLE001 - anything can be declared, and its attributes may raise
        return None
    return (code.co_filename, code.co_firstlineno) if isinstance(code, types.CodeType) else None


def _shape(hint: object, what: str, is_result: bool = False) -> Shape:
    try:
        return shape_of(hint, is_result)
    except Unsupported as error:
        raise Unsupported(f"{what}: {error}") from None
    except RecursionError:
        raise Unsupported(f"{what}: its type is nested without end") from None


def _param(parameter: inspect.Parameter, hint: object) -> Param:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise Unsupported(f"{parameter} has no form in JSON; take a list or a dict instead")
    shape = _shape(hint, f"parameter {parameter.name}")
    schema = shape.schema
    default = parameter.default
    source = source_in(hint)
    if default is parameter.empty:
        return Param(shape.name, schema, shape.check, source=source)
    if type(default).__name__ == "FieldInfo":
        raise Unsupported(f"parameter {parameter.name}: {FIELD_AS_DEFAULT}")
    with suppress(Exception):  # a default that is not JSON is not in the schema
        # Now and never again: what it holds may change.
        schema = {**schema, "default": loads(ENCODE(default))}
    return Param(shape.name, schema, shape.check, required=False, source=source)


def source_in(hint: object) -> Source | None:
    """Return where Emacs takes a value from: for `Region`, `Optional[FileName]` and the like."""
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Source):
            return extra
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    inside = arguments[:1] if origin is typing.Annotated else arguments if origin in UNIONS else ()
    return next(filter(None, map(source_in, inside)), None)


def _by_name(function: Callable[..., object], positional: dict[str, Any]) -> Callable[..., object]:
    """Let parameters that Python takes by position alone be given, or left out, by name."""

    def call(**arguments: object) -> object:
        first = [arguments.pop(name, default) for name, default in positional.items()]
        return function(*first, **arguments)

    return call
