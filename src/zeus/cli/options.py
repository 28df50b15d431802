"""Options that several commands parse in the same way."""

from __future__ import annotations

import math
from typing import Any

import click

STORE_DEFAULT = "Default: ZEUS_STORE, or $XDG_DATA_HOME/zeus/zeus.db."


class FiniteRange(click.FloatRange):
    """A range that holds neither "nan" nor "inf", which click takes for numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def indices(text: str | None) -> list[int] | None:
    """The value of `--gpu-indices 0,1`. None if it was not given."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise click.BadParameter(f"{text!r}: give integers such as 0,1.", param_hint="--gpu-indices") from None
