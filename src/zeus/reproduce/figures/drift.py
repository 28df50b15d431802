"""§6.4: Zeus under data drift, on the slices of Capriccio (Figure 10). Ours come from a sample of Sentiment140."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zeus.errors import InputError
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import unknown
from zeus.reproduce.panel import HALF, Figure, Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.drift import capriccio, experiment
from zeus.simulate.drift.reaction import FEWEST_SEEDS, Reaction, reaction
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME: Final = "figure_10"
SAMPLE: Final = Path("sentiment140_sample") / "sentiment140_sample.csv"
QUICK: Final = 4  # slices
SHOWN: Final = {"energy": "Energy to accuracy (kJ)", "time": "Time to accuracy (s)", "batch_size": "Batch size"}


def compute(study: Study) -> Result:
    """Train a small text classifier for real on every slice. Only its GPU is modelled."""
    try:
        tweets = capriccio.read_tweets(study.data / SAMPLE)
    except InputError as wrong:
        return unknown(NAME, ("slices", "reacts"), str(wrong))
    window, first = capriccio.proportional_window(len(tweets)), capriccio.PAPER_FIRST
    cut = list(capriccio.slices(tweets, window, first))
    workloads = experiment.tweets(cut[:QUICK] if study.quick else cut)
    found = experiment.run(workloads)
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
        Panel(f"{NAME}{letter}", f"Capriccio: {titles[what]}", columns, lines, HALF)
        for letter, what in zip("abc", SHOWN, strict=True)
    )
    part = f" This quick run has only the first {len(found)} slices." if study.quick else ""
    remark = (
        f"Each window holds {window} of the {len(tweets)} tweets in the sample, the same share as in the paper. A "
        f"small text classifier is trained for real. Its energy and time are those of BERT on a virtual V100.{part}"
    )
    empty = capriccio.empty_dates(cut, first)
    days = f"From {first} to {cut[-1].date}, {empty} of {len(cut) + empty} dates have no tweets and begin no slice."
    return Result(panels, (Number(f"{NAME}.slices", len(cut), note=days), _reacts(workloads, study.seeds)), remark)


def _reacts(workloads: Sequence[tuple[str, Workload]], seeds: int) -> Number:
    """Whether spikes make Zeus try other sizes; beside it, the same without the window and without drift."""
    path = [workload for _, workload in workloads]
    ours = reaction(path, range(seeds))
    if ours is None:
        why = f"Needs at least {FEWEST_SEEDS} seeds, and slices with a spike after the pruning phase."
        return Number(f"{NAME}.reacts", None, note=why)
    dates = ", ".join(workloads[at - 1][0] for at in ours.slices)
    note = f"{_said(ours)} (over {seeds} seeds; the spikes, all on {dates}, are one event)."
    controls = {
        "Without the window": reaction(path, range(seeds), window=0),
        "At the same slices without drift (the first slice, again and again)": reaction(
            [path[0]] * len(path), range(seeds), spikes_of=path
        ),
    }
    for what, one in controls.items():
        if one is not None:
            note += f" {what}: {_said(one)}, so {'yes' if one.seen else 'no'}."
    return Number(f"{NAME}.reacts", "yes" if ours.seen else "no", note=note)


def _said(one: Reaction) -> str:
    rates = f"{100 * one.after_spikes:.0f} % after a spike, {100 * one.at_other_times:.0f} % at other times"
    return f"{rates}, difference {100 * one.difference:.0f} ± {100 * one.error:.0f} points"


def draw(axes: Axes, panel: Panel) -> None:
    """One quantity by the first day of the slice. Slices with several trials are marked."""

    def days(some: Panel) -> list[int]:
        return [date.fromisoformat(day).toordinal() for day in some.column("date")]

    what = dict(zip("abc", SHOWN, strict=True))[panel.name[-1]]
    axes.plot(days(panel), panel.column(what), "-o", color=style.BLUE, markersize=3.5, label="slice")
    again = panel.only(row for row, tries in zip(panel.rows, panel.column("tries"), strict=True) if tries > 1)
    if again.rows:
        axes.plot(days(again), again.column(what), "D", color=style.RED, label="several trials")
    axes.set_yscale("log", base=2 if what == "batch_size" else 10)
    if what == "batch_size":
        sizes = sorted(set(panel.column(what)))
        axes.set_yticks(sizes, [str(size) for size in sizes])
    else:
        drawing.plain_ticks(axes.yaxis, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000))
    first, last = days(panel)[0], days(panel)[-1]
    shown = range(first, last + 1, max(1, (last - first) // 10))
    axes.set_xticks(shown, [f"{date.fromordinal(day):%d %b}" for day in shown])
    axes.set(xlabel=f"First day of the slice, {panel.column('date')[0][:4]}", ylabel=SHOWN[what])
    axes.legend(loc="best")


FIGURES: Final = (
    Figure(NAME, "Energy, time and batch size under data drift (sample of Sentiment140, virtual V100)", compute, draw),
)
