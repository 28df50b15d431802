"""What the benchmarks share: where the traces lie, percentiles, rows of tables, and the helpers of the tests.

Whoever imports this module can import `support` after it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from zeus.simulate.traces.rows import published

ROOT = Path(__file__).parents[1]
TRACES = published(ROOT)
sys.path.insert(0, str(ROOT / "tests"))


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which this share lies.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5)
    3.0
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def row(*cells: object) -> str:
    """A row of a Markdown table.

    >>> row("a", 1)
    '| a | 1 |'
    """
    return f"| {' | '.join(map(str, cells))} |"


def head(*names: str) -> str:
    """The first two rows of a Markdown table."""
    return "\n".join([row(*names), row(*["---"] * len(names))])
