"""From a hint to its shape: which kind of hint it is, and who describes that kind."""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

from duet_rpc.methods.definitions import HERE, Definitions
from duet_rpc.methods.method import Mismatch
from duet_rpc.methods.schema.choices import enum_shape, literal_shape, union_shape
from duet_rpc.methods.schema.containers import CONTAINERS
from duet_rpc.methods.schema.meanings import meaning_shape
from duet_rpc.methods.schema.models import is_pydantic, model_shape
from duet_rpc.methods.schema.records import (
    dataclass_shape,
    namedtuple_shape,
    substitute,
    typeddict_shape,
)
from duet_rpc.methods.schema.shape import ANY, Shape, Unsupported, show
from duet_rpc.methods.schema.simple import LIBRARY, SIMPLE

if TYPE_CHECKING:
    from duet_rpc.methods.schema.constraints import Constraint

UNIONS = (Union, getattr(types, "UnionType", Union))


def shape_of(hint: object, is_result: bool = False) -> Shape:
    """Turn one hint into its shape, with a schema that is complete by itself."""
    shapes = Shapes(is_result)
    shape = shapes.of(hint)
    definitions = shapes.definitions.schemas
    if definitions:
        shape = shape._replace(schema={**shape.schema, "$defs": definitions})
    return shape


class Open:
    """A type whose shape is being made; it contains itself if it is met again meanwhile."""

    def __init__(self, hint: object, name: str, key: str) -> None:
        self.hint = hint
        self.name = name
        self.key = key  # among the definitions
        self.is_used = False
        self.shape = ANY

    def refer(self) -> Shape:
        """Return a shape that stands for the one being made."""
        self.is_used = True

        def check(value: Any) -> Any:
            try:
                return self.shape.check(value)
            except RecursionError:
                raise Mismatch("less nesting", "too much nesting", of_value=True) from None

        def dump(value: Any) -> Any:
            return self.shape.dump(value)

        return Shape(self.name, {"$ref": HERE + self.key}, check, dump)


class Shapes:
    """Makes the shape of one hint and of all that it contains."""

    def __init__(self, is_result: bool) -> None:
        self.definitions = Definitions()
        self._is_result = is_result
        self._open: list[Open] = []

    def of(self, hint: Any) -> Shape:
        """Return the shape of a hint."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self._annotated(hint)
        if origin is None and hint in SIMPLE:
            return SIMPLE[hint]
        if origin in UNIONS:
            return union_shape([self.of(each) for each in arguments])
        if origin is typing.Literal:
            return literal_shape(list(arguments))
        maker = CONTAINERS.get(origin or hint)
        if maker is not None:
            return maker(self, arguments)
        shape = self._named(hint, origin or hint, arguments)
        if shape is not None:
            return shape
        raise Unsupported(
            f"the hint {show(hint)} has no form in JSON; use str, int, float, bool, None, bytes, "
            "list, tuple, set, dict, Literal, Enum, Optional, Union, a dataclass, a TypedDict, a "
            "NamedTuple, date, time, datetime, timedelta, Decimal, UUID, Path or Any; for a result "
            "also Text, Image, Edit or Goto"
        )

    def _annotated(self, hint: Any) -> Shape:
        from duet_rpc.methods.schema import constraints

        inner, extras = hint.__origin__, hint.__metadata__
        if "pydantic" in sys.modules and any(map(constraints.needs_pydantic, extras)):
            return self._model(hint, show(inner))
        description, limits = constraints.read_extras(extras)
        if limits and typing.get_origin(inner) in UNIONS:
            shape = self._limited_union(typing.get_args(inner), limits)
        else:
            shape = constraints.constrain(self.of(inner), limits)
        if description is not None:
            shape = shape._replace(schema={**shape.schema, "description": description})
        return shape

    def _limited_union(self, members: tuple[Any, ...], limits: list[Constraint]) -> Shape:
        """Apply each limit to those alternatives for which it has a meaning."""
        from duet_rpc.methods.schema.constraints import applies, constrain

        shapes = [self.of(each) for each in members]
        for limit in limits:
            fits = [applies(shape, limit) for shape in shapes]
            if not any(fits):
                constrain(union_shape(shapes), [limit])  # which says why
            shapes = [
                constrain(shape, [limit]) if fit else shape for shape, fit in zip(shapes, fits)
            ]
        return union_shape(shapes)

    def _named(self, hint: Any, kind: Any, arguments: tuple[Any, ...]) -> Shape | None:
        """Return the shape of a type that has a name, None where there is none for it."""
        if isinstance(hint, typing.TypeVar):
            return self._variable(hint)
        if hasattr(hint, "__supertype__"):
            shape = self.of(hint.__supertype__)
            return shape._replace(schema={"title": hint.__name__, **shape.schema})
        if type(kind).__name__ == "TypeAliasType":
            bindings = dict(zip(kind.__type_params__, arguments))
            return self._opened(hint, lambda: self.of(substitute(kind.__value__, bindings)))
        return self._class(hint, kind, arguments) if isinstance(kind, type) else None

    def _class(self, hint: Any, kind: Any, arguments: tuple[Any, ...]) -> Shape | None:
        for module, name, describe in LIBRARY:
            if kind is getattr(sys.modules.get(module), name, None):
                return describe(kind)
        shape = meaning_shape(kind, self._is_result)
        if shape is not None:
            return shape
        if is_pydantic(kind):
            return self._model(hint, show(hint))
        if issubclass(kind, enum.Enum):
            return enum_shape(kind)
        if hasattr(kind, "__dataclass_fields__"):
            describe_members = dataclass_shape
        elif hasattr(kind, "__required_keys__"):
            describe_members = typeddict_shape
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            describe_members = namedtuple_shape
        else:
            return None
        return self._opened(hint, lambda: describe_members(self, kind, arguments, show(hint)))

    def _model(self, hint: Any, name: str) -> Shape:
        shape = model_shape(hint, name, self._is_result)
        return shape._replace(schema=self.definitions.take_from(shape.schema))

    def _variable(self, variable: Any) -> Shape:
        """Take what a type variable that stands for nothing is limited to."""
        if variable.__constraints__:
            return union_shape([self.of(each) for each in variable.__constraints__])
        return ANY if variable.__bound__ is None else self.of(variable.__bound__)

    def _opened(self, hint: Any, make: Callable[[], Shape]) -> Shape:
        """Make the shape of a type that may contain itself."""
        for known in self._open:
            if known.hint == hint:
                return known.refer()
        opened = Open(hint, show(hint), self.definitions.reserve(show(hint), hint))
        self._open.append(opened)
        try:
            opened.shape = make()
        finally:
            self._open.pop()
        if opened.is_used:
            self.definitions.schemas[opened.key] = opened.shape.schema
        return opened.shape
