"""Figure 10 (§6.4): Zeus under data drift, on the slices of Capriccio. Ours come from a sample of Sentiment140."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from zeus.errors import InputError
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import unknown
from zeus.reproduce.panel import Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.drift import capriccio, experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_10"
TITLE = "Energy, time and batch size under data drift (sample of Sentiment140, virtual V100)"
SAMPLE: Final = Path("sentiment140_sample") / "sentiment140_sample.csv"
QUICK: Final = 4  # slices
SHOWN: Final = {"energy": "Energy to accuracy (kJ)", "time": "Time to accuracy (s)", "batch_size": "Batch size"}


def compute(study: Study) -> Result:
    """Train a small text classifier for real on every slice. Only its GPU is modelled."""
    try:
        tweets = capriccio.read_tweets(study.data / SAMPLE)
    except InputError as wrong:
        return unknown(NAME, ("slices", "reacts"), str(wrong))
    window = capriccio.proportional_window(len(tweets))
    cut = list(capriccio.slices(tweets, window))
    found = experiment.run(experiment.tweets(cut[:QUICK] if study.quick else cut))
    columns = ("slice", "date", "batch_size", "limit_watts", "tries", "reached_target", "energy", "time")
    lines = rows(
        (r.slice, r.label, r.batch_size, r.power_limit, r.tries, r.converged, r.energy / 1e3, r.time) for r in found
    )
    titles = {
        "energy": "energy of all trials",
        "time": "time of all trials",
        "batch_size": "batch size of the last trial",
    }
    panels = tuple(
        Panel(f"{NAME}{letter}", f"Capriccio: {titles[what]}", columns, lines, (6.4, 2.8))
        for letter, what in zip("abc", SHOWN, strict=True)
    )
    worst = max(found, key=lambda r: r.energy)
    around = {r.batch_size for r in found if abs(r.slice - worst.slice) <= 1}
    reacts = "yes" if worst.tries > 1 or len(around) > 1 else "no"
    part = f" This quick run has only the first {len(found)} slices." if study.quick else ""
    remark = (
        f"Each window holds {window} of the {len(tweets)} tweets in the sample, the same share as in the paper. A "
        f"small text classifier is trained for real. Its energy and time are those of BERT on a virtual V100.{part}"
    )
    numbers = (Number(f"{NAME}.slices", len(cut)), Number(f"{NAME}.reacts", reacts))
    return Result(panels, numbers, remark)


def draw(axes: Axes, panel: Panel) -> None:
    """One quantity by slice. Slices with several trials are marked."""
    what = dict(zip("abc", SHOWN, strict=True))[panel.name[-1]]
    axes.plot(panel.column("slice"), panel.column(what), "-o", color=style.BLUE, markersize=3.5, label="slice")
    again = panel.only(row for row, tries in zip(panel.rows, panel.column("tries"), strict=True) if tries > 1)
    if again.rows:
        axes.plot(again.column("slice"), again.column(what), "D", color=style.RED, label="several trials")
    axes.set_yscale("log", base=2 if what == "batch_size" else 10)
    if what == "batch_size":
        sizes = sorted(set(panel.column(what)))
        axes.set_yticks(sizes, [str(size) for size in sizes])
    else:
        drawing.plain_ticks(axes.yaxis, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000))
    axes.set_xlabel("Slice (each starts one day later)")
    axes.set_ylabel(SHOWN[what])
    axes.legend(loc="best")
