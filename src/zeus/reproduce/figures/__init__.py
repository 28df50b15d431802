"""The figures of the paper, one module for each section. `FIGURES` has all of them, in the order of the report."""

from __future__ import annotations

from typing import Final

from zeus.errors import InputError
from zeus.reproduce.figures import (
    cluster,
    drift,
    mechanism,
    motivation,
    overhead,
    performance,
    pollux,
    reference,
    sensitivity,
)
from zeus.reproduce.panel import Figure

SECTIONS: Final = (motivation, mechanism, performance, cluster, drift, overhead, pollux, sensitivity, reference)
ORDER: Final = ("table", "figure", "section", "reference")

FIGURES: Final[dict[str, Figure]] = {
    one.name: one
    for one in sorted(
        (figure for section in SECTIONS for figure in section.FIGURES),
        key=lambda one: (ORDER.index(one.name.partition("_")[0]), one.name),
    )
}


def figure(name: str) -> Figure:
    """The figure of this name. Raises InputError if there is none."""
    if name not in FIGURES:
        raise InputError(f"unknown figure {name!r}. Known figures: {', '.join(FIGURES)}.")
    return FIGURES[name]
