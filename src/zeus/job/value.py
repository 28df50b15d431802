"""What every fact is made of: a frozen value whose fields say their types and bounds once.

A field is written as `joules: Annotated[float, Meta(ge=0)]`, mostly by one of the names below. From that one line
follow what the constructor accepts, what JSON is read and written (`zeus.job.wire`), and what the service's OpenAPI
document says. Unknown is None (JSON: null); NaN is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from math import isnan
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from zeus.cost import LEAST, MOST
from zeus.job.checks import MOST_WHOLE, need, whole_wanted

Whole = Annotated[int, Meta(ge=1, le=MOST_WHOLE)]
Count = Annotated[int, Meta(ge=0, le=MOST_WHOLE)]
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
NotBelow = Annotated[float, Meta(ge=0, le=MOST)]
Above = Annotated[float, Meta(ge=LEAST, le=MOST)]
Squares = Annotated[float, Meta(ge=0, le=MOST * MOST)]  # of joules or seconds, and costs, which are products
Share = Annotated[float, Meta(ge=0, le=1)]

T = TypeVar("T")


def replace(value: T, /, **changes: Any) -> T:
    """A copy of a value, or of a dataclass, with some fields changed. It is checked as a new one is."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]


class Checked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A frozen value. Raises InputError if a number or a flag is out of its bounds.

    >>> class Run(Checked, frozen=True):
    ...     epochs: Count
    ...     joules: NotBelow | None = None
    >>> Run(3, 100.0)
    Run(epochs=3, joules=100.0)
    >>> Run(3, float("nan"))
    Traceback (most recent call last):
    zeus.errors.InputError: joules=nan: give a number of at least 0, or None.
    """

    def __post_init__(self) -> None:
        if not _is_sound(type(self))(self):
            _refuse(self)


@cache
def _is_sound(cls: type[Checked]) -> Callable[[Checked], bool]:
    """A function that says whether all numbers and flags of a value are within their bounds.

    It is compiled as one expression for each class, because a loop over the fields takes three times as long.
    """
    terms, names = ["True"], {}
    for name, kinds, least, most in _bounds(cls):
        names[f"{name}_kinds"] = kinds
        unknown = f"one.{name} is None or " if NoneType in kinds else ""
        terms.append(f"({unknown}one.{name}.__class__ in {name}_kinds and {least!r} <= one.{name} <= {most!r})")
    sound: Callable[[Checked], bool] = eval(f"lambda one: {' and '.join(terms)}", names)
    return sound


def _refuse(one: Checked) -> None:
    """Raise InputError for the first field that is out of its bounds. A float of NumPy is a number too."""
    for name, kinds, least, most in _bounds(type(one)):
        value = getattr(one, name)
        if value is None and NoneType in kinds:
            continue
        is_number = value.__class__ in kinds or (isinstance(value, float) and float in kinds)
        need(is_number and least <= value <= most, name, value, _wanted(value, kinds, least, most))


@cache
def _bounds(cls: type[Checked]) -> tuple[tuple[str, frozenset[type], Any, Any], ...]:
    """For each field that is a number or a flag: the types that it may have, and its bounds."""
    found = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        parts = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is not Annotated else (hint,)
        kinds, least, most = set[type](), -MOST, MOST
        for part in parts or (hint,):
            base, *metas = get_args(part) if get_origin(part) is Annotated else (part,)
            kinds.add(base)
            for meta in metas:
                least = least if meta.ge is None else meta.ge
                most = most if meta.le is None else meta.le
        if kinds - {NoneType} <= {int, float, bool} and kinds - {NoneType}:
            found.append((name, frozenset(kinds | {int} if float in kinds else kinds), least, most))
    return tuple(found)


def _wanted(value: object, kinds: frozenset[type], least: float, most: float) -> str:
    """What to give in place of a value."""
    if bool in kinds:
        wanted = "true or false"
    elif float in kinds:
        lowest = "a finite number" if least == -MOST else f"a number {_least(least)}"
        wanted = lowest if most >= MOST else f"a number from {least:g} to {most:g}"
    else:
        wanted = whole_wanted(value, int(least)) if most == MOST_WHOLE else f"a whole number from {least} to {most}"
    return f"{wanted}, or None" if NoneType in kinds and isinstance(value, float) and isnan(value) else wanted


def _least(least: float) -> str:
    return "above 0" if least == LEAST else f"of at least {least:g}"
