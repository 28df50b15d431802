"""Draws `cheaper.svg`, the energy of each recurrence of the demonstration, from what `zeus demo --json` says.

zeus demo --json | python docs/assets/make_picture.py > docs/assets/cheaper.svg
"""

from __future__ import annotations

import json
import sys
from typing import Any

WIDTH, HEIGHT = 680, 390
LEFT, RIGHT, TOP, FLOOR = 24, 656, 108, 318  # of the bars
STYLE = """
    text { font: 16px Helvetica, Arial, sans-serif; fill: #1d2b2f }
    .title { font-size: 19px; font-weight: bold }
    .quiet { fill: #55666b }
    .result { font-size: 17px; font-weight: bold; fill: #0b6a75 }
    .ground { fill: #fbfcfc; stroke: #d3dcde }
    .saved { fill: #0b7a86; opacity: 0.14 }
    .usual { fill: #8a3b12 }
    .tried { fill: #e0a22b }
    .settled { fill: #0b7a86 }
    .line { stroke: #8a3b12; stroke-width: 2; stroke-dasharray: 7 5 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4ecee }
      .quiet { fill: #a3b3b7 }
      .result { fill: #63c6d1 }
      .ground { fill: #10262b; stroke: #2b454b }
      .saved { fill: #63c6d1; opacity: 0.16 }
      .usual { fill: #ff9d6b }
      .tried { fill: #f4b942 }
      .settled { fill: #3fb0bd }
      .line { stroke: #ff9d6b }
    }
"""


def picture(report: dict[str, Any]) -> str:
    """The SVG: a bar for each recurrence below what the default uses, in a colour that tells its batch size."""
    rows, usual = report["history"], report["default"]
    recent, all_of_them = report["recent_saving"], report["saving"]
    last = max(report["tries"], key=lambda one: one["number"])
    highest = max(usual["joules"], *(row["joules"] for row in rows))
    pitch = (RIGHT - LEFT) / len(rows)

    def height(joules: float) -> float:
        return FLOOR - joules / highest * (FLOOR - TOP)

    def kind(batch_size: int) -> str:
        return {last["batch_size"]: "settled", usual["batch_size"]: "usual"}.get(batch_size, "tried")

    top = height(usual["joules"])
    parts = [_box("saved", LEFT, top, RIGHT - LEFT, FLOOR - top)]
    for place, row in enumerate(rows):
        y = height(row["joules"])
        parts.append(_box(kind(row["batch_size"]), LEFT + (place + 0.12) * pitch, y, 0.76 * pitch, FLOOR - y))
    parts.append(f'<path class="line" d="M{LEFT} {top:.1f}H{RIGHT}"/>')
    parts.append(_text(LEFT, 34, "title", f"Energy of {len(rows)} recurrences of one job, all to the same accuracy"))
    others = sorted({row["batch_size"] for row in rows} - {last["batch_size"], usual["batch_size"]})
    legend = (
        ("usual", f"batch size {usual['batch_size']}, the default"),
        ("tried", f"tried: {', '.join(map(str, others))}"),
        ("settled", f"settled on: {last['batch_size']}"),
    )
    for place, (colour, said) in enumerate(legend):
        x = LEFT + (0, 258, 452)[place]
        parts += [_box(colour, x, 52, 14, 14), _text(x + 22, 65, "quiet", said)]
    said = f"without Zeus: {usual['joules'] / 1000:.2f} kJ each, at {usual['limit_watts']:.0f} W"
    parts.append(_text(RIGHT, top - 9, "", said, "end"))
    parts.append(_text(LEFT, FLOOR + 24, "quiet", "first"))
    parts.append(_text(RIGHT, FLOOR + 24, "quiet", f"last, at {last['limit_watts']:.0f} W", "end"))
    saved = f"{100 * all_of_them['share']:.0f} % saved in all"
    ending = f"the last five: {100 * recent['share']:.0f} % less energy, {100 * recent['time_share']:.0f} % less time"
    parts.append(_text(LEFT, FLOOR + 52, "result", f"{saved}; {ending}"))
    body = "\n  ".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img">\n  <title>Energy of each recurrence of one job</title>\n  <style>{STYLE}  </style>\n'
        f'  <rect class="ground" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10"/>\n  {body}\n</svg>\n'
    )


def _box(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"/>'


def _text(x: float, y: float, kind: str, said: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{said}</text>'


if __name__ == "__main__":
    sys.stdout.write(picture(json.load(sys.stdin)))
