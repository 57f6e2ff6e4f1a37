"""Pydantic's own types, checked, described and written by pydantic itself.

It is imported by whoever uses it, never by duet-rpc. The checks are pydantic's strict ones on JSON
text: as strict as ours, and dates in strings are read.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.jsontext import dumps, loads, make_encoder, to_utf8
from duet_rpc.methods.definitions import HERE, map_parts
from duet_rpc.methods.method import Mismatch, json_type
from duet_rpc.methods.schema.plain import to_plain
from duet_rpc.methods.schema.shape import Shape, Unsupported, show, step_to

if TYPE_CHECKING:
    from duet_rpc.methods.method import Schema

encode = make_encoder(to_plain)

PREFIX = re.compile("Value error, |Assertion failed, |[A-Z][a-z ]* should (?:be|have) ")
"""How pydantic begins what `expected` says already."""


def is_pydantic(kind: object) -> bool:
    """Return True for a class that says how pydantic is to treat it."""
    return "pydantic" in sys.modules and (
        hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__")
    )


def model_shape(hint: Any, name: str, is_result: bool) -> Shape:
    """Describe what pydantic makes of a hint."""
    pydantic: Any = sys.modules["pydantic"]
    core: Any = sys.modules["pydantic_core"]
    try:
        adapter = pydantic.TypeAdapter(hint)
        schema = adapter.json_schema(mode="serialization" if is_result else "validation")
    except Exception as error:  # noqa: BLE001 - pydantic raises what it likes
        reason = str(error).partition("\n")[0]
        raise Unsupported(f"pydantic can't use {show(hint)}: {reason}") from None

    def check(value: Any) -> Any:
        try:
            return adapter.validate_json(to_utf8(dumps(value)), strict=True)
        except pydantic.ValidationError as error:
            raise _mismatch(error, value) from None

    def write(value: Any) -> Any:
        return adapter.dump_python(value, mode="json", by_alias=True, warnings="error")

    def dump(value: Any) -> Any:
        try:
            return write(value)
        except core.PydanticSerializationError:
            # It is not what the hint says; it may look the same as JSON.
            return write(check(loads(encode(value))))

    return Shape(name, _classic(_entered(schema)), check, dump)


def _entered(schema: Schema) -> Schema:
    """Follow the reference that the schema of a recursive model is."""
    target, definitions = schema.get("$ref"), schema.get("$defs")
    if not isinstance(target, str) or not isinstance(definitions, dict):
        return schema
    return {**definitions[target[len(HERE) :]], "$defs": definitions}


def _classic(schema: Schema) -> Schema:
    """Write a schema of JSON Schema 2020-12 as ours are written."""
    made = map_parts(schema, _classic)
    made.pop("discriminator", None)  # a word of OpenAPI
    if "prefixItems" in made:
        made["items"] = made.pop("prefixItems")
    return made


def _mismatch(error: Any, value: Any) -> Mismatch:
    """Say the thing that pydantic found wrong deepest in the value, in our words."""
    found = error.errors(include_url=False)
    paths = [_steps(each, value) for each in found]
    at = max(range(len(found)), key=lambda index: len(paths[index]))
    kind, text, received = found[at]["type"], found[at]["msg"], json_type(found[at]["input"])
    if kind == "missing":
        text, received = "a value", "missing"
    elif kind == "extra_forbidden":
        text = "no member of this name"
    mismatch = Mismatch(PREFIX.sub("", text), received, of_value=not kind.endswith("_type"))
    for step in reversed(paths[at]):
        mismatch.under(step)
    return mismatch


def _steps(error: dict[str, Any], value: Any) -> list[str]:
    """Return the steps to what is wrong; pydantic names the members of a Union among them."""
    steps = []
    for step in error["loc"]:
        if isinstance(value, list) and isinstance(step, int):
            value = value[step]
            steps.append(f"[{step}]")
        elif isinstance(value, dict) and isinstance(step, str):
            if step in value:
                value = value[step]
            elif error["type"] != "missing":
                continue
            steps.append(step_to(step))
    return steps
