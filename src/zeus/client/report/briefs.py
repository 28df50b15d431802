"""Briefs of many jobs. Computing one reads all trials of its job, so the store keeps it until the job changes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import metadata
from typing import Any
from zlib import crc32

from zeus.errors import NotKnown, StoreError
from zeus.store import Store
from zeus.store.api import Digest
from zeus.tariff.rates import Prices
from zeus_energy import DISTRIBUTION

Json = dict[str, Any]
SHAPE = 2  # raise it when a brief says something else about the same facts, so that no older digest is used
AT_ONCE = 100  # digests read or written together


def each_brief(
    store: Store, pulse: Mapping[str, str], make: Callable[[str], Json], prices: Prices
) -> Iterator[tuple[str, Json]]:
    """The brief of each job in `pulse`, in that order. A job that was removed meanwhile is left out.

    A job whose trials run is always read again, because what they report does not change its pulse.

    Args:
        store: Where the jobs are.
        pulse: The jobs, with their pulses.
        make: Computes the brief of a job.
        prices: What `make` prices energy with.
    """
    names, prefix = list(pulse), _prefix(prices)
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        kept, fresh = {} if prefix is None else store.digests(some), dict[str, Digest]()
        try:
            for name in some:
                stamp = f"{prefix}:{pulse[name]}"
                if name in kept and kept[name].stamp == stamp:
                    yield name, json.loads(kept[name].text)
                    continue
                try:
                    brief = make(name)
                except NotKnown:
                    continue
                if prefix is not None and not brief["running"] and brief["phase"] != "unreadable":
                    with contextlib.suppress(ValueError):  # a number that JSON cannot hold
                        fresh[name] = Digest(stamp, json.dumps(brief, allow_nan=False))
                yield name, brief
        finally:  # also if the caller has seen enough
            if fresh:
                with contextlib.suppress(StoreError):  # it is busy or read-only; the next reader computes them again
                    store.keep_digests(fresh)


def _prefix(prices: Prices) -> str | None:
    """What a brief depends on besides its job; None if that cannot be told, as for rates that differ by the hour."""
    rates = (prices.per_kwh, prices.gco2e_per_kwh)
    if not all(rate is None or isinstance(rate, int | float) for rate in rates):
        return None
    return f"{SHAPE}:{_version()}:{crc32(repr((*rates, prices.currency)).encode()):08x}"


@cache
def _version() -> str:
    """The installed version, as another may compute briefs differently; empty for a checkout that is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""
