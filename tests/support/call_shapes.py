"""Checks that a function can be called as users call it."""

from __future__ import annotations

import inspect
from typing import Any


def check_call_shape(function: Any, known: list[str], defaults: tuple[Any, ...] | None = None) -> None:
    """Its positional parameters begin with the known ones, whose defaults are these. What is ours may be left out."""
    parameters = inspect.signature(function).parameters.values()
    positional = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert [one.name for one in positional][: len(known)] == known
    assert all(one.default is not one.empty for one in positional[len(known) :])
    if defaults is not None:
        assert tuple(one.default for one in positional[: len(known)] if one.default is not one.empty) == defaults
