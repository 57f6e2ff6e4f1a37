"""Shapes of types with named members: dataclasses, TypedDicts, NamedTuples, generic or not."""

from __future__ import annotations

import sys
import typing
from typing import TYPE_CHECKING, Any

from duet_rpc.methods.method import Mismatch, accepted, json_type
from duet_rpc.methods.schema.containers import fixed_array
from duet_rpc.methods.schema.plain import plain, type_of
from duet_rpc.methods.schema.shape import Shape, Unsupported, step_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.methods.schema.hints import Shapes

REASON_MAX = 500
"""How much of an exception's text is sent to the caller."""


FIELD_AS_DEFAULT = "a Field can't be a default here; write Annotated[..., Field(...)] = ..."


def read_hints(thing: Any, owner: str = "") -> dict[str, Any]:
    """Return the type hints of a function or a class, none of them a string."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except Exception as error:  # noqa: BLE001 - a hint may be any expression
        old = " (Python 3.9 knows Optional and Union, not |)" if "for |:" in str(error) else ""
        raise Unsupported(f"{owner}a type hint can't be read: {error}{old}") from None


# Generic types.

Bindings = dict[Any, Any]
"""What the type variables of a generic type stand for."""


def substitute(hint: Any, bindings: Bindings) -> Any:
    """Put the types that type variables stand for into a hint."""
    if isinstance(hint, typing.TypeVar):
        return bindings.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if not bindings or not variables:
        return hint
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint  # the class itself, of which nothing is said
    return hint[tuple(bindings.get(each, each) for each in variables)]


def _member_hints(kind: type, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Return the hints of a class's members, with type variables replaced."""
    hints = read_hints(kind, f"{kind.__name__}: ")
    owners: dict[str, Bindings] = {}
    _bind(kind, arguments, owners)
    return {name: substitute(hint, owners.get(name, {})) for name, hint in hints.items()}


def _bind(kind: Any, arguments: tuple[Any, ...], owners: dict[str, Bindings]) -> None:
    """Find the bindings of the class that each member is declared in.

    One type variable may stand for different types in a class and in its base.
    """
    bindings = dict(zip(getattr(kind, "__parameters__", ()), arguments))
    for base in kind.__dict__.get("__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and origin is not typing.Generic:
            inner = tuple(substitute(each, bindings) for each in typing.get_args(base))
            _bind(origin, inner, owners)
    # Before Python 3.10 a class without annotations has those of its base.
    is_old = sys.version_info < (3, 10)
    own = kind.__dict__.get("__annotations__", ()) if is_old else _annotations(kind)
    for name in own:
        owners[name] = bindings


def _annotations(kind: Any) -> dict[str, Any]:
    return getattr(kind, "__annotations__", {})  # types that are written in C have none


# Objects.


def dataclass_shape(shapes: Shapes, kind: type, arguments: tuple[Any, ...], name: str) -> Shape:
    """Describe a dataclass by the fields that its constructor takes."""
    import dataclasses
    import inspect

    hints = _member_hints(kind, arguments)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    absent = dataclasses.MISSING
    required = [
        field.name
        for field in fields
        if field.default is absent and field.default_factory is absent
    ]
    members = {}
    for field in fields:
        if type(field.default).__name__ == "FieldInfo":
            raise Unsupported(f"{name}.{field.name}: {FIELD_AS_DEFAULT}")
        shape = member_shape(shapes, hints[field.name], f"{name}.{field.name}")
        said = field.metadata.get("description")
        if type(said) is str:
            shape = shape._replace(schema={**shape.schema, "description": said})
        members[field.name] = shape
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.default is parameter.empty and parameter.name not in members:
            raise Unsupported(f"{kind.__name__} needs {parameter.name}, which is no field of it")

    def make(**made: Any) -> Any:
        try:
            return kind(**made)
        except (ValueError, TypeError) as error:  # of its __post_init__
            reason = str(error)[:REASON_MAX] or type(error).__name__
            raise Mismatch(reason, "object", of_value=True) from None

    return record_shape(name, members, required, make)


def typeddict_shape(shapes: Shapes, kind: type, arguments: tuple[Any, ...], name: str) -> Shape:
    """Describe a TypedDict."""
    bindings = dict(zip(getattr(kind, "__parameters__", ()), arguments))
    members = {}
    required = []
    for key, hint in read_hints(kind, f"{kind.__name__}: ").items():
        needed = key in kind.__required_keys__  # type: ignore[attr-defined]
        # Where annotations are strings the class itself could not see these words.
        while (word := getattr(typing.get_origin(hint), "_name", None)) in QUALIFIERS:
            (hint,) = typing.get_args(hint)
            needed = QUALIFIERS.get(word, needed) if word != "ReadOnly" else needed
        if needed:
            required.append(key)
        members[key] = member_shape(shapes, substitute(hint, bindings), f"{name}.{key}")
    return record_shape(name, members, required, dict)


QUALIFIERS: dict[Any, bool] = {"Required": True, "NotRequired": False, "ReadOnly": False}


def member_shape(shapes: Shapes, hint: Any, where: str) -> Shape:
    """Describe one member; say which one it is where that is not possible."""
    try:
        return shapes.of(hint)
    except Unsupported as error:
        raise Unsupported(f"{where}: {error}") from None


def record_shape(
    name: str, members: dict[str, Shape], required: list[str], make: Callable[..., Any]
) -> Shape:
    """Describe an object with named members."""
    record = Record(members, required, make)
    schema: dict[str, object] = {
        "type": "object",
        "title": name,
        "properties": {key: shape.schema for key, shape in members.items()},
        "required": required,
        "additionalProperties": False,
    }
    return Shape(name, schema, record.check, record.dump)


class Record:
    """The checks of an object with named members."""

    def __init__(
        self, members: dict[str, Shape], required: list[str], make: Callable[..., Any]
    ) -> None:
        self._members = members
        self._required = required
        self._make = make

    def check(self, value: Any) -> Any:
        """Make what the object stands for."""
        if type(value) is not dict:
            raise Mismatch("object", json_type(value))
        made = {}
        for key, each in value.items():
            shape = self._members.get(key)
            if shape is None:
                raise Mismatch("no member of this name", json_type(each)).under(step_to(key))
            try:
                made[key] = shape.check(each)
            except Mismatch as mismatch:
                raise mismatch.under(step_to(key)) from None
        self._check_required(made)
        return self._make(**made)

    def dump(self, value: Any) -> Any:
        """Check what a method returned; it may have more members, as a subclass has."""
        value = plain(value)
        if not isinstance(value, dict):
            raise Mismatch("object", type_of(value))
        made = dict(value)
        for key, shape in self._members.items():
            if key in made:
                try:
                    made[key] = shape.dump(made[key])
                except Mismatch as mismatch:
                    raise mismatch.under(step_to(key)) from None
        self._check_required(made)
        return made

    def _check_required(self, made: dict[str, Any]) -> None:
        for key in self._required:
            if key not in made:
                missing = self._members[key]
                raise Mismatch(missing.name, "missing", accepted(missing.schema)).under(key)


# Arrays.


def namedtuple_shape(shapes: Shapes, kind: Any, arguments: tuple[Any, ...], name: str) -> Shape:
    """Describe a NamedTuple: an array, as every tuple; those with a default may be absent."""
    hints = _member_hints(kind, arguments)
    items = []
    names = []
    for field in kind._fields:
        shape = member_shape(shapes, hints.get(field, Any), f"{name}.{field}")
        names.append(f"{field}: {shape.name}")
        items.append(shape._replace(schema={"title": field, **shape.schema}))
    least = len(kind._fields) - len(kind._field_defaults)
    array = fixed_array(f"[{', '.join(names)}]", items, least, lambda made: kind(*made))
    return array._replace(schema={"title": name, **array.schema})
