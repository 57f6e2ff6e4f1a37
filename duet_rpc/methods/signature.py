"""A Python function, turned into a `Method`: its signature says all there is to say."""

from __future__ import annotations

import inspect
import typing
from typing import Any, Callable

from duet_rpc.jsonrpc.jsontext import dumps, make_encoder
from duet_rpc.methods.context import Context
from duet_rpc.methods.registry import Method, Param
from duet_rpc.methods.schema import SIMPLE, Shape, Unsupported, shape_of, to_plain

ENCODE = make_encoder(to_plain)


def method_from(function: Callable[..., object], name: str) -> Method:
    """Describe a function; raise `Unsupported` where its signature has no form in JSON."""
    if inspect.iscoroutinefunction(function):
        raise Unsupported("an `async def` is not awaited here; let a `def` call asyncio.run")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:  # some functions in C say nothing of themselves
        raise Unsupported(f"its parameters can't be read: {error}") from None
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001 - a hint may be any expression
        old = " (Python 3.9 knows Optional and Union, not |)" if "for |:" in str(error) else ""
        raise Unsupported(f"a type hint can't be read: {error}{old}") from None
    params: dict[str, Param] = {}
    context = None
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
    returns = _shape(hints["return"], "the result") if "return" in hints else SIMPLE[Any]
    method = Method(
        name,
        inspect.getdoc(function) or "",
        _by_name(function, positional) if positional else function,
        params=params,
        label=returns.name,
        returns=returns.schema,
    )
    method.context = context
    method.encode = ENCODE
    method.source = source_of(function)
    return method


def source_of(function: Callable[..., object]) -> tuple[str, int] | None:
    """Return file and line of a function that is written in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else (code.co_filename, code.co_firstlineno)


def _shape(hint: object, what: str) -> Shape:
    try:
        return shape_of(hint)
    except Unsupported as error:
        raise Unsupported(f"{what}: {error}") from None
    except RecursionError:
        raise Unsupported(f"{what}: its type contains itself") from None


def _param(parameter: inspect.Parameter, hint: object) -> Param:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise Unsupported(f"{parameter} has no form in JSON; take a list or a dict instead")
    shape = _shape(hint, f"parameter {parameter.name}")
    schema = shape.schema
    required = parameter.default is parameter.empty
    if not required:
        try:
            dumps(parameter.default)
            schema = {**schema, "default": parameter.default}
        except (TypeError, ValueError, RecursionError):
            pass  # a default that is not JSON is not in the schema
    return Param(shape.name, schema, shape.check, required)


def _by_name(function: Callable[..., object], positional: dict[str, Any]) -> Callable[..., object]:
    """Let parameters that Python takes by position alone be given, or left out, by name."""

    def call(**arguments: object) -> object:
        first = [arguments.pop(name, default) for name, default in positional.items()]
        return function(*first, **arguments)

    return call
