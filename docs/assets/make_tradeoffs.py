"""Draws `tradeoffs.svg`: what the power limit and the batch size change, for DeepSpeech2 on the virtual V100.

python docs/assets/make_tradeoffs.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from zeus.simulate import virtual

FILE = Path(__file__).with_name("tradeoffs.svg")
ETA = 0.5
WIDTH, HEIGHT = 700, 350
TOP, FLOOR = 92, 288
STYLE = """
    text { font: 14px Helvetica, Arial, sans-serif; fill: #1d2b2f }
    .title { font-size: 16px; font-weight: bold }
    .quiet { fill: #55666b; font-size: 13px }
    .ground { fill: #fbfcfc; stroke: #d3dcde }
    .axis { stroke: #b8c5c8; stroke-width: 1; fill: none }
    path { fill: none; stroke-width: 2.5 }
    .energy { stroke: #e0a22b } .time { stroke: #8a3b12 } .cost { stroke: #0b7a86; stroke-width: 3.5 }
    .best { fill: #0b7a86 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4ecee } .quiet { fill: #a3b3b7 } .ground { fill: #10262b; stroke: #2b454b }
      .axis { stroke: #45626a }
      .energy { stroke: #f4b942 } .time { stroke: #ff9d6b } .cost { stroke: #3fb0bd } .best { fill: #3fb0bd }
    }
"""


class Curve(NamedTuple):
    """Values relative to the least, with a colour and a name."""

    kind: str
    name: str
    values: Sequence[float]


def picture() -> str:
    """The SVG with both panels."""
    job = virtual.load("v100")["DeepSpeech2"]
    model = job.cost_model(ETA)
    slices = sorted(job.profiles[job.default].slices, key=lambda one: one.limit_watts)
    limits = [
        Curve("energy", "energy", [one.joules for one in slices]),
        Curve("time", "time", [one.seconds for one in slices]),
        Curve("cost", "cost", [one.step_cost(model) for one in slices]),
    ]
    batches = [size for size in job.sizes if any(job.runs[size])]
    epochs = [mean(run for run in job.runs[size] if run) for size in batches]
    each = [job.best_epoch(size, ETA).step_cost(model) for size in batches]
    sizes = [
        Curve("energy", "epochs", epochs),
        Curve("time", "epoch cost", each),
        Curve("cost", "cost", [count * cost for count, cost in zip(epochs, each, strict=True)]),
    ]
    watts = [one.limit_watts for one in slices]
    left = _panel(44, 330, "The power limit", "watts", watts, [f"{one:.0f}" for one in watts], limits)
    logs = [math.log2(size) for size in batches]
    marks = [str(size) if math.log2(size).is_integer() else "" for size in batches]
    right = _panel(390, 676, "The batch size", "samples", logs, marks, sizes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img">\n  <title>What the power limit and the batch size change</title>\n  <style>{STYLE}  </style>\n'
        f'  <rect class="ground" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10"/>\n  '
        + "\n  ".join([*left, *right])
        + "\n</svg>\n"
    )


def _panel(
    left: int, right: int, title: str, unit: str, places: Sequence[float], marks: Sequence[str], curves: Sequence[Curve]
) -> list[str]:
    """A panel whose curves are drawn relative to their least value; a dot marks the least cost."""
    highest = max(max(one.values) / min(one.values) for one in curves)
    first, last = min(places), max(places)

    def x(place: float) -> float:
        return left + (place - first) / (last - first) * (right - left)

    def y(ratio: float) -> float:
        return FLOOR - (ratio - 1) / (highest - 1) * (FLOOR - TOP)

    parts = [_text(left - 20, 30, "title", title), f'<path class="axis" d="M{left} {FLOOR}H{right}"/>']
    for number, one in enumerate(curves):
        start = left - 20 + 104 * number
        parts.append(f'<path class="{one.kind}" d="M{start} 50h18"/>')
        parts.append(_text(start + 24, 55, "quiet", one.name))
        points = "L".join(
            f"{x(at):.1f} {y(value / min(one.values)):.1f}" for at, value in zip(places, one.values, strict=True)
        )
        parts.append(f'<path class="{one.kind}" d="M{points}"/>')
    costs = curves[-1].values
    best = places[costs.index(min(costs))]
    parts.append(f'<circle class="best" cx="{x(best):.1f}" cy="{y(1):.1f}" r="6"/>')
    parts += [_text(x(at), FLOOR + 20, "quiet", mark, "middle") for at, mark in zip(places, marks, strict=True) if mark]
    parts.append(_text(right, FLOOR + 42, "quiet", unit, "end"))
    parts.append(_text(left - 20, FLOOR + 42, "quiet", f"each relative to its least; highest {highest:.1f} times"))
    return parts


def _text(x: float, y: float, kind: str, said: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{said}</text>'


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
