"""The devices of a training over all of its ranks, each counted once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from socket import gethostname

from zeus.cost import Include
from zeus.distributed.group import RankGroup
from zeus.errors import InputError
from zeus.monitor.window import ZeusMonitor

Cards = Mapping[tuple[str, str], float]  # highest limits in watts, by node and UUID


def cards_of(monitor: ZeusMonitor) -> Cards:
    """The cards that this rank sees. Several ranks of a node may see the same."""
    node = gethostname()
    return {(node, gpu.spec.uuid): gpu.spec.max_watts for gpu in monitor.gpus.values()}


def counted_once(rows: Iterable[Cards]) -> tuple[int, float]:
    """The number of different cards, and the sum of their highest limits in watts.

    >>> counted_once([{("node", "a"): 250.0, ("node", "b"): 250.0}, {("node", "b"): 250.0}])
    (2, 500.0)
    """
    cards = {card: watts for row in rows for card, watts in row.items()}
    return len(cards), sum(cards.values())


def count_gpus(monitor: ZeusMonitor, ranks: RankGroup) -> tuple[int, float]:
    """The number of GPUs of all ranks, and the sum of their highest limits in watts. Every rank must call this.

    From here on every rank has a monitor, so it is clear who counts what.
    """
    return counted_once(ranks.gather(cards_of(monitor)))


def need_included(monitor: ZeusMonitor, ranks: RankGroup, include: Include) -> None:
    """Check that all the energy that counts can be measured. Every rank must call this, and all get the same answer.

    Raises:
        InputError: The CPU counts, and the counters of some node cannot be read.
    """
    if "cpu" in include:
        refuse_without_cpu(include, ranks.gather(monitor.why_no_cpu))


def refuse_without_cpu(include: Include, why_not: Iterable[str | None]) -> None:
    """Raise `InputError` if the CPU counts and one of these, which are the ranks', says why it cannot be measured."""
    reason = next(filter(None, why_not), None)
    if "cpu" in include and reason is not None:
        raise InputError(
            f"the cost includes the CPU, but its energy cannot be measured. {reason} "
            'To count only GPUs, leave "cpu" out of include.'
        )
