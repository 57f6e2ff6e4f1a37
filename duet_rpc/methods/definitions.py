"""Schemas of types that contain themselves: definitions, and references to them.

A schema with references has its definitions in its own `$defs`, so that it is complete by itself.
Documents that contain several schemas collect the definitions of all of them in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.methods.method import Schema

HERE = "#/$defs/"

PARTS = {
    "items", "prefixItems", "additionalItems", "contains", "additionalProperties", "propertyNames",
    "anyOf", "oneOf", "allOf", "not", "if", "then", "else",
}  # fmt: skip
NAMED_PARTS = {"properties", "patternProperties", "$defs"}


def map_parts(schema: Schema, function: Callable[[Schema], Schema]) -> Schema:
    """Apply a function to all schemas that are directly inside a schema."""

    def apply(part: Any) -> Any:
        return function(part) if isinstance(part, dict) else part

    made: Schema = {}
    for key, value in schema.items():
        if key in NAMED_PARTS and isinstance(value, dict):
            made[key] = {name: apply(part) for name, part in value.items()}
        elif key in PARTS:
            made[key] = [apply(part) for part in value] if isinstance(value, list) else apply(value)
        else:
            made[key] = value
    return made


class Definitions:
    """The definitions of several schemas, each under a name of its own."""

    def __init__(self, place: str = HERE) -> None:
        self._place = place
        self._owners: dict[str, object] = {}  # by name, what a definition is made of
        self.schemas: dict[str, Schema] = {}

    def take_from(self, schema: Schema) -> Schema:
        """Move a schema's definitions here; return it with references to this place."""
        theirs = schema.get("$defs")
        if not isinstance(theirs, dict):
            return schema
        names = {name: self.reserve(name, made) for name, made in theirs.items()}

        def refer(part: Schema) -> Schema:
            made = map_parts(part, refer)
            target = made.get("$ref")
            if isinstance(target, str) and target.startswith(HERE):
                name = target[len(HERE) :]
                made["$ref"] = self._place + names.get(name, name)
            return made

        for name, made in theirs.items():
            self.schemas[names[name]] = refer(made)
        return refer({key: value for key, value in schema.items() if key != "$defs"})

    def reserve(self, name: str, owner: object) -> str:
        """Return a name that nobody else has, made of the one that is wished for."""
        # It becomes part of a URI.
        name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
        name = name.strip("_") or "type"
        number, free = 1, name
        while free in self._owners and self._owners[free] != owner:
            number += 1
            free = f"{name}_{number}"
        self._owners[free] = owner
        return free
