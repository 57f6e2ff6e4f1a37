"""A Python function, turned into a `Method`: its signature says all there is to say."""

from __future__ import annotations

import inspect
import typing
from typing import Any, Callable

from duet_rpc.methods.context import Context
from duet_rpc.methods.registry import Method, Param
from duet_rpc.methods.schema import SIMPLE, Unsupported, shape_of, to_plain
from duet_rpc.protocol.messages import to_json


def method_from(function: Callable[..., object], name: str) -> Method:
    """Describe a function; raise `Unsupported` where its signature has no form in JSON."""
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001 - a hint may be any expression
        raise Unsupported(f"a type hint can't be read: {error}") from None
    params: dict[str, Param] = {}
    context = None
    positional = []
    for parameter in signature.parameters.values():
        hint = hints.get(parameter.name, Any)
        # `ctx: Context = None` is Optional[Context] before Python 3.11.
        if hint is Context or Context in typing.get_args(hint):
            context = parameter.name
        else:
            params[parameter.name] = _param(parameter, hint)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
    returns = shape_of(hints["return"]) if "return" in hints else SIMPLE[Any]
    method = Method(
        name,
        inspect.getdoc(function) or "",
        _by_name(function, positional) if positional else function,
        params=params,
        label=returns.name,
        returns=returns.schema,
    )
    method.context = context
    method.default = to_plain
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        method.source = code.co_filename, code.co_firstlineno
    return method


def _param(parameter: inspect.Parameter, hint: object) -> Param:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise Unsupported(f"{parameter} has no form in JSON; take a list or a dict instead")
    try:
        shape = shape_of(hint)
    except Unsupported as error:
        raise Unsupported(f"parameter {parameter.name}: {error}") from None
    except RecursionError:
        raise Unsupported(f"parameter {parameter.name}: its type contains itself") from None
    schema = shape.schema
    required = parameter.default is parameter.empty
    if not required:
        try:
            to_json(parameter.default)
            schema = {**schema, "default": parameter.default}
        except (TypeError, ValueError):
            pass  # a default that JSON can't say is not said
    return Param(shape.name, schema, shape.check, required)


def _by_name(function: Callable[..., object], positional: list[str]) -> Callable[..., object]:
    """Let parameters that Python takes by position alone be given by name."""

    def call(**arguments: object) -> object:
        first = [arguments.pop(name) for name in positional if name in arguments]
        return function(*first, **arguments)

    return call
