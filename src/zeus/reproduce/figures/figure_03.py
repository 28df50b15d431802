"""Figure 3 (§3): how Zeus works on a recurring job. A drawing of ours, without data."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Final

from zeus.reproduce import style
from zeus.reproduce.panel import HALF, Panel, Result
from zeus.reproduce.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_03"
TITLE = "How Zeus works on a recurring job"
BOXES: Final = {  # place across and up, from 0 to 10, and colour
    "user": (0.7, 8.6, "#EEEEEE"),
    "batch size policy": (4.0, 8.6, "#D6ECFA"),
    "training": (6.8, 5.0, "#EEEEEE"),
    "power limit optimizer": (9.1, 8.6, "#FBE6B8"),
    "GPU": (9.1, 1.2, "#EEEEEE"),
    "store": (4.0, 1.2, "#F3DCE8"),
}
STEPS: Final = (
    ("user", "batch size policy", "1. job: sizes, target, η"),
    ("batch size policy", "training", "2. batch size, and the most it may cost"),
    ("training", "power limit optimizer", "3. each step"),
    ("power limit optimizer", "GPU", "4. profiles the limits, sets the best"),
    ("training", "store", "5. energy and time up to the target, or stopped early"),
    ("store", "batch size policy", "6. what is known, for the next recurrence"),
)
WIDE, NARROW = 24, 19  # letters in a line, along an arrow and beside or upon one


def compute(study: Study) -> Result:
    del study  # a drawing
    panel = Panel(NAME, "The parts of Zeus, and what they tell each other", ("from", "to", "what"), STEPS, HALF)
    return Result((panel,), remark="A drawing of ours. The paper's has the same parts.")


def draw(axes: Axes, panel: Panel) -> None:
    """Boxes, with an arrow and its text for each row."""
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 10)
    for start, end, what in panel.rows:
        (x, y, _), (u, v, _) = BOXES[str(start)], BOXES[str(end)]
        axes.annotate("", (u, v), (x, y), zorder=1, arrowprops={
            "arrowstyle": "-|>", "color": style.GREY, "shrinkA": 20, "shrinkB": 46 if y == v else 26,
        })  # fmt: skip
        level = y == v
        axes.text((x + u) / 2, (y + v) / 2 + (0.3 if level else 0), fill(str(what), WIDE if level else NARROW),
                  fontsize=8.5, ha="center", va="bottom" if level else "center", zorder=2,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
    for name, (x, y, colour) in BOXES.items():
        axes.text(x, y, name.replace(" ", "\n", 1) if len(name) > 10 else name, fontsize=9.5, fontweight="bold",
                  ha="center", va="center", zorder=3,
                  bbox={"boxstyle": "round,pad=0.7", "facecolor": colour, "edgecolor": style.GREY})  # fmt: skip
