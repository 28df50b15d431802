"""Virtual cards and workloads by name: fitted to the paper's traces if there are any, otherwise scaled from those.

- V100, A40, RTX 6000, P100: the power curve and the paper's six workloads, fitted by `benchmarks/fit_virtual.py`, which
  wrote `fitted.toml` next to this file.
- Other cards: limits and speeds from their data sheets, the power curve of the nearest fitted card, and the V100's
  workloads, scaled (see `_scaled`). They behave like the real card, but the numbers are approximate.
- `compute-bound`, `memory-bound`, `input-bound`: invented workloads, one of each kind, for every card.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from zeus.device.virtual.physics import Card, Load
from zeus.errors import InputError, suggest

DEFAULT_LOAD: Final = "compute-bound"


@dataclass(frozen=True, slots=True)
class _Facts:
    """Data sheet values. Idle power is with the driver loaded and a process on the card; None if it is fitted."""

    name: str
    min_watts: float
    max_watts: float
    default_watts: float
    idle_watts: float | None
    like: str  # the fitted card whose power curve it borrows
    teraflops: float  # single precision
    gigabytes_per_second: float


_CARDS: Final[dict[str, _Facts]] = {
    "v100": _Facts("Tesla V100-PCIE-32GB", 100, 250, 250, None, "v100", 14.0, 900),
    "a40": _Facts("NVIDIA A40", 100, 300, 300, None, "a40", 37.4, 696),
    "rtx6000": _Facts("Quadro RTX 6000", 100, 260, 260, None, "rtx6000", 16.3, 672),
    "p100": _Facts("Tesla P100-PCIE-16GB", 125, 250, 250, None, "p100", 9.3, 732),
    "a100": _Facts("NVIDIA A100-SXM4-80GB", 100, 400, 400, 65, "v100", 19.5, 2039),
    "h100": _Facts("NVIDIA H100 80GB HBM3", 200, 700, 700, 115, "v100", 67.0, 3350),
    "h200": _Facts("NVIDIA H200", 200, 700, 700, 124, "v100", 67.0, 4800),
    "l40s": _Facts("NVIDIA L40S", 100, 350, 350, 80, "a40", 91.6, 864),
    "rtx4090": _Facts("NVIDIA GeForce RTX 4090", 150, 600, 450, 55, "a40", 82.6, 1008),
}

_COMPUTE_BOUND: Final = Load(  # on a V100
    samples_per_epoch=50_000,
    host_seconds_per_step=2e-3,
    host_seconds_per_sample=2e-5,
    compute_seconds_per_sample=1e-3,
    half_batch=8,
    crowd_batch=10_000,
    latency_seconds_per_step=2e-3,
    memory_seconds_per_sample=1e-4,
    compute_watts=350,
    light_watts=120,
)
_GENERIC: Final[dict[str, Load]] = {
    "compute-bound": _COMPUTE_BOUND,
    "memory-bound": replace(
        _COMPUTE_BOUND,
        compute_seconds_per_sample=1e-4,
        memory_seconds_per_sample=1e-3,
        compute_watts=150,
        light_watts=150,
    ),
    "input-bound": replace(_COMPUTE_BOUND, host_seconds_per_sample=2e-3, compute_seconds_per_sample=2e-4),
}


def card(name: str) -> Card:
    """The card of this name, as in `virtual:a40`. Case, dashes and underscores do not matter."""
    return _card(_find(name, card_names(), "card"))


def load(card_name: str, load_name: str = DEFAULT_LOAD) -> Load:
    """A workload as it runs on a card. Case, dashes and underscores do not matter, in either name."""
    on = _find(card_name, card_names(), "card")
    what = _find(load_name, load_names(), "load")
    if what in _fitted()[_CARDS[on].like]["loads"] and on == _CARDS[on].like:
        return _fitted_load(on, what)
    return derived(on, what)


def card_names() -> tuple[str, ...]:
    return tuple(_CARDS)


def load_names() -> tuple[str, ...]:
    """The names of all workloads. Each runs on every card."""
    return (*_GENERIC, *_fitted()["v100"]["loads"])


def derived(card_name: str, load_name: str) -> Load:
    """The V100's workload scaled to another card, even if a fit for that card exists."""
    base = _GENERIC[load_name] if load_name in _GENERIC else _fitted_load("v100", load_name)
    return base if card_name == "v100" else _scaled(base, card_name)


def _scaled(base: Load, card_name: str) -> Load:
    """Move a workload from the V100 to another card by their data sheets.

    Memory time scales with bandwidth. Compute time scales with the geometric mean of bandwidth and arithmetic, because
    real kernels wait for both. A faster card needs a larger batch to be fully used. Host time and kernel latency stay.
    Power above idle scales with the room between idle power and the default limit.
    """
    v100, other = _CARDS["v100"], _CARDS[card_name]
    bandwidth = other.gigabytes_per_second / v100.gigabytes_per_second
    speed = (bandwidth * other.teraflops / v100.teraflops) ** 0.5
    heat = (other.default_watts - _card(card_name).idle_watts) / (v100.default_watts - _card("v100").idle_watts)
    return replace(
        base,
        compute_seconds_per_sample=base.compute_seconds_per_sample / speed,
        half_batch=base.half_batch * speed,
        memory_seconds_per_sample=base.memory_seconds_per_sample / bandwidth,
        compute_watts=base.compute_watts * heat,
        light_watts=base.light_watts * heat,
    )


@cache
def _card(name: str) -> Card:
    facts = _CARDS[name]
    curve = _fitted()[facts.like]
    return Card(
        name=facts.name,
        min_watts=facts.min_watts,
        max_watts=facts.max_watts,
        default_watts=facts.default_watts,
        idle_watts=curve["idle_watts"] if facts.idle_watts is None else facts.idle_watts,
        min_clock=curve["min_clock"],
        knee_clock=curve["knee_clock"],
        exponent=curve["exponent"],
    )


@cache
def _fitted_load(card_name: str, load_name: str) -> Load:
    return Load(**_fitted()[card_name]["loads"][load_name])


@cache
def _fitted() -> dict[str, Any]:
    return tomllib.loads(files("zeus.device.virtual").joinpath("fitted.toml").read_text(encoding="utf-8"))


def _find(name: str, known: tuple[str, ...], what: str) -> str:
    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "").replace(" ", "")

    for candidate in known:
        if plain(candidate) == plain(name):
            return candidate
    raise InputError(f"no virtual {what} is named {name!r}. {suggest(name, known)}")
