"""Types of every kind that a hint can name."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
import uuid
from typing import Annotated, Any, Generic, List, NamedTuple, NewType, Optional, TypedDict, TypeVar


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


@dataclasses.dataclass
class Line:
    name: str
    points: List[Point] = dataclasses.field(default_factory=list)


class Movie(TypedDict, total=False):
    title: str
    year: int


class Song(TypedDict):
    title: str


@dataclasses.dataclass
class Derived:
    name: str
    length: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.name)


class Level(str, enum.Enum):
    LOW = "low"


T = TypeVar("T")
UserId = NewType("UserId", int)


class Pair(NamedTuple):
    left: int
    right: str = "r"


@dataclasses.dataclass
class Page(Generic[T]):
    items: List[T]
    next: Optional[T] = None


@dataclasses.dataclass
class Numbers(Page[int], Generic[T]):
    """The same variable stands for another type than in its base."""

    about: Optional[T] = None


@dataclasses.dataclass
class Tree:
    name: str
    branches: List[Tree] = dataclasses.field(default_factory=list)


class Node(TypedDict, total=False):
    value: int
    next: Optional[Node]


@dataclasses.dataclass
class Account:
    balance: int

    def __post_init__(self) -> None:
        if self.balance < 0:
            raise ValueError("a balance that is not negative")
        if self.balance == 13:
            raise TypeError


@dataclasses.dataclass(frozen=True)
class Ge:
    """What annotated_types and others have, known by its attribute."""

    ge: Any


@dataclasses.dataclass(frozen=True)
class Limits:
    gt: Any = None
    le: Any = None
    lt: Any = None
    multiple_of: Any = None
    min_length: Any = None
    max_length: Any = None
    pattern: Any = None


Short = Annotated[str, Limits(min_length=1, max_length=3)]
Count = Annotated[int, Ge(1), Limits(le=10)]
ID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")


def label(value: object) -> str:
    """Name a case; in Python 3.9 the text of a NewType has an address in it."""
    return re.sub(" at 0x[0-9a-f]+", "", str(value))


NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
