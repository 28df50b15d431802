"""Fits the virtual GPUs to the paper's published traces, or checks the committed fit.

    python benchmarks/fit_virtual.py --traces DIR            fit, print the table and the numbers
    python benchmarks/fit_virtual.py --traces DIR --write    the same, and replace src/zeus/device/virtual/fitted.toml
    python benchmarks/fit_virtual.py --traces DIR --cards p100 --write  fit only these cards, keep the others
    python benchmarks/fit_virtual.py --traces DIR --check    only compare what is committed with the traces
    python benchmarks/fit_virtual.py --traces DIR --hold-out fit every other batch size, print the errors at the rest

The fit is least squares on the logarithms of epoch time and average power. The loss is robust, as single rows of the
traces are off by tens of per cent. Each workload is fitted from several starts with the power curve of its card fixed.
Then the curve and all workloads of the card are fitted together. Both steps are done twice.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from zeus.device.virtual import presets
from zeus.device.virtual.physics import Card, Load, epoch
from zeus.simulate.traces.rows import PowerRow, published, read_power
from zeus.simulate.workload_file import table_1

FITTED = Path(__file__).parents[1] / "src" / "zeus" / "device" / "virtual" / "fitted.toml"
CARDS = ("v100", "a40", "rtx6000", "p100")
WORKLOADS = {one.virtual.load: one.key for one in table_1().values() if one.virtual}
SEED, STARTS, ROUNDS = 2023, 7, 2
LOSS = {"loss": "soft_l1", "f_scale": 0.05}  # linear beyond 5 %, so that outliers have little weight
# Residual per e-fold from the first guess. It keeps numbers that the traces do not determine near that guess. Input
# time is held near 0 more strongly: it is hidden behind GPU time and would only show on a faster card.
TETHER = np.array([0.01, 0.04, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01])

SPREAD = np.array([0.8, 3.0, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8])  # of the starts, in e-folds

SAMPLES = {  # per epoch, from the data sets; they only scale the numbers per sample
    "deepspeech2": 281_241,
    "bert-qa": 88_524,
    "bert-sa": 1_600_000,
    "resnet50": 1_281_167,
    "shufflenetv2": 50_000,
    "neumf": 4_970_845,
}

# name, lowest, highest; all are fitted as logarithms
CURVE = (("idle_watts", 20, 95), ("min_clock", 0.08, 0.4), ("knee_clock", 0.4, 0.95), ("exponent", 1.5, 6))
LOAD = (
    ("host_seconds_per_step", 1e-5, 10),
    ("host_seconds_per_sample", 1e-8, 1),
    ("compute_seconds_per_sample", 1e-8, 1),
    ("half_batch", 1e-1, 1e4),
    ("crowd_batch", 10, 1e7),
    ("latency_seconds_per_step", 1e-5, 10),
    ("memory_seconds_per_sample", 1e-8, 1),
    ("compute_watts", 1, 800),
    ("light_share", 0.005, 1),  # light_watts / compute_watts: the light phase never draws more power
)
FIRST_CURVE = {
    "v100": (32, 0.15, 0.65, 3.0),
    "a40": (82, 0.15, 0.73, 3.5),
    "rtx6000": (53, 0.15, 0.7, 3.5),
    "p100": (32, 0.15, 0.65, 3.0),
}

Vector = np.ndarray[Any, np.dtype[np.float64]]
Model = Callable[[str, str], tuple[Card, Load]]


def logs(values: Sequence[float]) -> Vector:
    return np.array([math.log(value) for value in values])


def bounds(table: tuple[tuple[str, float, float], ...]) -> tuple[Vector, Vector]:
    return logs([low for _, low, _ in table]), logs([high for _, _, high in table])


@dataclass(frozen=True)
class Problem:
    """One workload on one card: its rows, and the distance of a candidate from them."""

    card: str
    workload: str
    rows: tuple[PowerRow, ...]

    def load(self, x: Vector) -> Load:
        numbers = dict(zip((row[0] for row in LOAD), np.exp(x).tolist(), strict=True))
        numbers["light_watts"] = numbers["compute_watts"] * numbers.pop("light_share")
        return Load(samples_per_epoch=SAMPLES[self.workload], **numbers)

    def guess(self) -> Vector:
        samples = SAMPLES[self.workload]
        step = min(r.seconds_per_epoch * r.batch_size / samples for r in self.rows)
        sample = min(r.seconds_per_epoch / samples for r in self.rows)
        x = logs([step * 0.8, sample * 0.02, sample * 0.8, 4, 3000, step * 0.2, sample * 0.1, 300, 0.2])
        low, high = bounds(LOAD)
        return np.clip(x, low + 1e-3, high - 1e-3)

    def random_starts(self) -> Iterator[Vector]:
        low, high = bounds(LOAD)
        rng = np.random.default_rng([SEED, CARDS.index(self.card), list(WORKLOADS).index(self.workload)])
        for _ in range(STARTS):
            yield np.clip(self.guess() + rng.normal(0, SPREAD), low + 1e-3, high - 1e-3)

    def residuals(self, card: Card, load: Load) -> Vector:
        seconds, watts = [], []
        for row in self.rows:
            modelled = epoch(card, load, row.batch_size, row.limit_watts)
            seconds.append(modelled.seconds / row.seconds_per_epoch)
            watts.append(modelled.watts / row.average_watts)
        return logs(seconds + watts)

    def fit(self, card: Card, first: Vector) -> Vector:
        """The best fit from the first start and several random ones."""
        guess = self.guess()

        def distance(x: Vector) -> Vector:
            return np.concatenate([self.residuals(card, self.load(x)), TETHER * (x - guess)])

        found = [
            least_squares(distance, x, bounds=bounds(LOAD), max_nfev=120, **LOSS)
            for x in (first, *self.random_starts())
        ]
        best: Vector = min(found, key=lambda result: float(result.cost)).x
        return best


def with_curve(name: str, x: Vector) -> Card:
    return replace(presets.card(name), **dict(zip((row[0] for row in CURVE), np.exp(x).tolist(), strict=True)))


def fit_card(name: str, problems: list[Problem]) -> tuple[Card, dict[str, Load]]:
    """Fit the curve of a card and its loads: each workload alone, then all together, twice."""
    curve = logs(FIRST_CURVE[name])
    xs = [problem.guess() for problem in problems]
    for _ in range(ROUNDS):
        xs = [problem.fit(with_curve(name, curve), x) for problem, x in zip(problems, xs, strict=True)]
        curve, *xs = together(name, problems, curve, xs)
    return with_curve(name, curve), {p.workload: p.load(x) for p, x in zip(problems, xs, strict=True)}


def together(name: str, problems: list[Problem], curve: Vector, xs: list[Vector]) -> list[Vector]:
    """Fit the curve and all loads at once. A load affects only its own rows, so the Jacobian is sparse."""
    width, cuts = len(LOAD), len(CURVE)
    guesses = [p.guess() for p in problems]

    def split(z: Vector) -> list[Vector]:
        return [z[:cuts], *(z[cuts + i * width : cuts + (i + 1) * width] for i in range(len(problems)))]

    def distance(z: Vector) -> Vector:
        c, *loads = split(z)
        card = with_curve(name, c)
        parts = [p.residuals(card, p.load(x)) for p, x in zip(problems, loads, strict=True)]
        return np.concatenate([*parts, *(TETHER * (x - g) for x, g in zip(loads, guesses, strict=True))])

    lengths = [2 * len(p.rows) for p in problems] + [width] * len(problems)
    touches = np.zeros((sum(lengths), cuts + width * len(problems)), dtype=int)
    top = 0
    for i, length in enumerate(lengths):
        j = i % len(problems)
        touches[top : top + length, cuts + j * width : cuts + (j + 1) * width] = 1
        if i < len(problems):
            touches[top : top + length, :cuts] = 1
        top += length
    low = np.concatenate([bounds(CURVE)[0], *[bounds(LOAD)[0]] * len(problems)])
    high = np.concatenate([bounds(CURVE)[1], *[bounds(LOAD)[1]] * len(problems)])
    z = np.clip(np.concatenate([curve, *xs]), low + 1e-6, high - 1e-6)
    return split(least_squares(distance, z, bounds=(low, high), jac_sparsity=touches, max_nfev=200, **LOSS).x)


def problems_of(traces: Path, card: str) -> list[Problem]:
    rows = read_power(traces / f"summary_power_{card}.csv")
    every = [Problem(card, name, tuple(r for r in rows if r.workload == key)) for name, key in WORKLOADS.items()]
    return [problem for problem in every if problem.rows]


def halves(problem: Problem) -> tuple[Problem, Problem]:
    """Split the batch sizes: every other one, starting with the smallest, and the rest."""
    seen = set(sorted({row.batch_size for row in problem.rows})[::2])
    kept = tuple(row for row in problem.rows if row.batch_size in seen)
    return replace(problem, rows=kept), replace(
        problem, rows=tuple(r for r in problem.rows if r.batch_size not in seen)
    )


def errors(problem: Problem, card: Card, load: Load) -> tuple[Vector, Vector]:
    """Absolute relative errors of epoch time and of power."""
    off = np.abs(np.expm1(problem.residuals(card, load)))
    return off[: len(problem.rows)], off[len(problem.rows) :]


def table(traces: Path, model: Model, cards: tuple[str, ...] = CARDS) -> dict[str, tuple[float, ...]]:
    """Print medians and 95th percentiles in per cent. Return those of each card as shares."""
    whole: dict[str, tuple[float, ...]] = {}
    print(
        "| card | workload | rows | time median | time p95 | power median | power p95 |\n|---|---|---|---|---|---|---|"
    )
    for name in cards:
        each = [(p, *errors(p, *model(name, p.workload))) for p in problems_of(traces, name)]
        for problem, seconds, watts in each:
            print(f"| {name} | {problem.workload} | {line(seconds, watts)} |")
        seconds, watts = (np.concatenate([e[i] for e in each]) for i in (1, 2))
        print(f"| **{name}** | **all** | {line(seconds, watts)} |")
        whole[name] = summary(seconds, watts)
    return whole


def price_of_trust(problem: Problem, card: Card, load: Load) -> Iterator[float]:
    """For each batch size, the extra cost of the limit that the model picks (Eq. 7, η = 0.5) over the best one."""

    def cost(seconds: float, watts: float) -> float:
        return seconds * (0.5 * watts + 0.5 * card.max_watts)

    for batch_size in sorted({row.batch_size for row in problem.rows}):
        rows = [row for row in problem.rows if row.batch_size == batch_size]
        modelled = [epoch(card, load, batch_size, row.limit_watts) for row in rows]
        true = [cost(row.seconds_per_epoch, row.average_watts) for row in rows]
        picked = min(range(len(rows)), key=lambda i: cost(modelled[i].seconds, modelled[i].watts))
        yield true[picked] / min(true) - 1


def summary(seconds: Vector, watts: Vector) -> tuple[float, ...]:
    (t50, t95), (p50, p95) = np.quantile(seconds, [0.5, 0.95]), np.quantile(watts, [0.5, 0.95])
    return float(t50), float(t95), float(p50), float(p95)


def line(seconds: Vector, watts: Vector) -> str:
    return f"{len(seconds)} | " + " | ".join(f"{100 * value:.1f} %" for value in summary(seconds, watts))


def toml(found: dict[str, tuple[Card, dict[str, Load]]]) -> str:
    lines = ["# Written by benchmarks/fit_virtual.py from the published traces of the paper; do not edit by hand."]
    for name, (card, loads) in found.items():
        lines += ["", f"[{name}]", *(f"{key} = {getattr(card, key):.4g}" for key, _, _ in CURVE)]
        for workload, load in loads.items():
            samples, *numbers = asdict(load).items()
            lines += ["", f"[{name}.loads.{workload}]", f"{samples[0]} = {samples[1]}"]
            lines += [f"{key} = {float(f'{value:.4g}')!r}" for key, value in numbers]
    return "\n".join(lines) + "\n"


def committed(card: str, workload: str) -> tuple[Card, Load]:
    return presets.card(card), presets.load(card, workload)


def scaled(card: str, workload: str) -> tuple[Card, Load]:
    return presets.card(card), presets.derived(card, workload)


def hold_out(traces: Path, cards: Sequence[str]) -> None:
    """Fit half of the batch sizes and print the errors at the other half."""
    for name in cards:
        seen, unseen = zip(*(halves(problem) for problem in problems_of(traces, name)), strict=True)
        card, loads = fit_card(name, list(seen))
        each = [errors(problem, card, loads[problem.workload]) for problem in unseen]
        seconds, watts = (np.concatenate([e[i] for e in each]) for i in (0, 1))
        print(f"| {name} | batch sizes not fitted | {line(seconds, watts)} |")


def fits(traces: Path, cards: Sequence[str]) -> dict[str, tuple[Card, dict[str, Load]]]:
    """Fit these cards. The others stay as they are committed."""
    return {
        name: fit_card(name, problems_of(traces, name))
        if name in cards
        else (presets.card(name), {load: presets.load(name, load) for load in WORKLOADS})
        for name in CARDS
    }


def report(traces: Path, model: Model) -> None:
    print(f"{len(LOAD)} fitted numbers per workload and card, {len(CURVE)} per card.\n")
    table(traces, model)
    prices = [
        price
        for name in CARDS
        for p in problems_of(traces, name)
        for price in price_of_trust(p, *model(name, p.workload))
    ]
    print(
        f"\nPicking the limit with the model instead of the trace costs {100 * np.mean(prices):.1f} % more on average "
        f"over {len(prices)} batch sizes, {100 * np.quantile(prices, 0.95):.1f} % at the 95th percentile."
    )
    print("\nThe V100's workloads scaled by data sheet, as on a card without traces:\n")
    table(traces, scaled, CARDS[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--traces", type=Path, default=published(), help=f"folder with summary_power_CARD.csv of {', '.join(CARDS)}"
    )
    parser.add_argument("--cards", nargs="+", choices=CARDS, default=CARDS, help="cards to fit; default: all")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help=f"replace {FITTED.name} by the new fit")
    what.add_argument("--check", action="store_true", help="fit nothing: compare the committed numbers")
    what.add_argument(
        "--hold-out", action="store_true", help="fit every other batch size, print the errors at the rest"
    )
    options = parser.parse_args()
    if options.hold_out:
        hold_out(options.traces, options.cards)
        return
    if options.check:
        report(options.traces, committed)
        return
    found = fits(options.traces, options.cards)
    if options.write:
        FITTED.write_text(toml(found), encoding="utf-8")
    else:
        print(toml(found))
    report(options.traces, lambda card, workload: (found[card][0], found[card][1][workload]))


if __name__ == "__main__":
    main()
