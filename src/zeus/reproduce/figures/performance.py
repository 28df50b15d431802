"""§6.2, with Appendices D, E and G: what Zeus and Grid Search converge to, what it costs, and their paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import converged, over_seeds
from zeus.reproduce.panel import HALF, Cell, Figure, Number, Panel, Result, rows
from zeus.reproduce.search_picture import draw_search
from zeus.reproduce.study import MAIN, Case, Floats, Study
from zeus.simulate import regret

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FREE: Final = "Grid Search, failures free"
METHODS: Final = {"Grid Search": "grid", FREE: "grid-free", "Zeus": "paper"}
COMPARED: Final = {"Grid Search": "grid", "Zeus": "paper"}  # by what they converge to, which the charge does not change
FIGURE_7: Final = ("DeepSpeech2", "ResNet-50")
FROM_B0: Final = {"charged": "grid:from-default", "free": "grid-free:from-default"}  # the other order of the search


def cases_by_gpu(study: Study) -> list[Case]:
    return [Case(name, policy, gpu) for gpu in study.workloads for name in study.workloads[gpu]
            for policy in COMPARED.values()]  # fmt: skip


def ratio_panels(study: Study, gpu: str, name: str) -> tuple[Panel, Panel]:
    """Energy and time of the last five recurrences, relative to Default."""
    lines: dict[str, list[tuple[Cell, ...]]] = {"energy": [], "time": []}
    for workload in study.workloads[gpu]:
        for some in lines.values():
            some.append((workload, "Default", 1.0, 1.0, 1.0))
        for method, policy in COMPARED.items():
            for what, values in converged(study, Case(workload, policy, gpu))._asdict().items():
                lines[what].append((workload, method, values.mean(), values.min(), values.max()))
    columns, card = ("workload", "method", "ratio", "low", "high"), style.GPUS.get(gpu, gpu)
    return (
        Panel(f"{name}a", f"Energy of the last five recurrences, {card}", columns, rows(lines["energy"]), HALF),
        Panel(f"{name}b", f"Time of the last five recurrences, {card}", columns, rows(lines["time"]), HALF),
    )


def ratios(study: Study) -> Result:
    """A number is the mean over seeds of the most extreme workload in each seed."""
    every = [converged(study, Case(name)) for name in study.main]
    energy = 100 * (1 - np.array([one.energy for one in every]))
    time = 100 * (1 - np.array([one.time for one in every]))
    numbers = (
        over_seeds("figure_06.energy_low", energy.min(axis=0)),
        over_seeds("figure_06.energy_high", energy.max(axis=0)),
        over_seeds("figure_06.time_high", time.max(axis=0)),
        over_seeds("figure_06.time_low", -time.min(axis=0)),
    )
    return Result(ratio_panels(study, MAIN, "figure_06"), numbers)


def ratios_by_gpu(study: Study) -> Result:
    panels = tuple(panel for gpu in study.workloads for panel in ratio_panels(study, gpu, f"figure_23_{gpu}_"))
    means = [
        float(converged(study, Case(name, gpu=gpu)).energy.mean())
        for gpu, workloads in study.workloads.items()
        for name in workloads
    ]
    return Result(panels, (Number("figure_23.improved", 100 * sum(mean < 1 for mean in means) / len(means)),))


def draw_ratios(axes: Axes, panel: Panel) -> None:
    """Three bars per workload. Whiskers show the range over seeds."""
    drawing.bars(axes, panel, "workload", "method", "ratio", style.METHODS, written=drawing.digits)
    drawing.room_for_values(axes, 0, max(panel.column("high")))
    axes.set_ylabel(("Energy" if panel.name.endswith("a") else "Time") + " / Default")
    drawing.legend_below(axes)


def cumulative(study: Study, case: Case) -> Floats:
    """Equation 8 after each recurrence, with one row per seed."""
    least = regret.optimum(study.workload(case), case.eta)
    return np.cumsum(study.past(case).cost - least, axis=1)


def regret_panel(study: Study, workload: str, name: str, gpu: str = MAIN) -> Panel:
    lines = []
    for method, policy in METHODS.items():
        sums = cumulative(study, Case(workload, policy, gpu))
        for recurrence, column in enumerate(sums.T, start=1):
            lines.append((method, recurrence, column.mean(), column.min(), column.max()))
    columns = ("method", "recurrence", "cumulative_regret", "low", "high")
    return Panel(name, f"{workload}: cumulative regret", columns, rows(lines))


def regret_cases(names: Callable[[Study], Mapping[str, object] | tuple[str, ...]], study: Study) -> list[Case]:
    return [Case(name, policy) for name in names(study) for policy in (*METHODS.values(), *FROM_B0.values())]


def two_regrets(study: Study) -> Result:
    panels = tuple(regret_panel(study, one, f"figure_07{at}") for at, one in zip("ab", FIGURE_7, strict=True))
    behind = {
        policy: {name: _behind(study, name, policy) for name in FIGURE_7}
        for policy in ("grid", "grid-free", *FROM_B0.values())
    }

    def times_above(policy: str) -> str:
        return ", ".join(f"{name} {some}" for name, some in behind[policy].items())

    note = (
        f"Recurrences after which Zeus is not below, if failed runs are free: {times_above('grid-free')}. If the "
        f"search began at b0 instead of the smallest size: {times_above(FROM_B0['charged'])} with failed runs charged, "
        f"{times_above(FROM_B0['free'])} with failed runs free."
    )
    below = sum(not some for some in behind["grid"].values())
    return Result(panels, (Number("figure_07.below_throughout", below, note=note),))


def _behind(study: Study, workload: str, grid: str) -> int:
    """After how many recurrences the mean cumulative regret of Zeus is not below that of this Grid Search."""
    zeus, other = (cumulative(study, Case(workload, policy)).mean(axis=0) for policy in ("paper", grid))
    return int((zeus >= other).sum())


def all_regrets(study: Study) -> Result:
    panels = tuple(
        regret_panel(study, name, f"figure_19{letter}") for letter, name in zip("abcdef", study.main, strict=True)
    )
    zeus = {name: cumulative(study, Case(name, "paper"))[:, -1] for name in study.main}

    def over(policy: str) -> dict[str, float]:
        return {
            name: float(cumulative(study, Case(name, policy))[:, -1].mean() / zeus[name].mean()) for name in study.main
        }

    charged, free = over("grid"), over("grid-free")
    worst = max(free, key=lambda name: free[name])
    by_seed = cumulative(study, Case(worst, "grid-free"))[:, -1] / zeus[worst]
    each = ", ".join(f"{name} {free[name]:.1f} / {charged[name]:.1f}" for name in charged)
    from_b0 = {charge: max(over(policy).values()) for charge, policy in FROM_B0.items()}
    below = Number("figure_19.below_grid", sum(min(charged[name], free[name]) > 1 for name in study.main),
                   note=f"Regret of Grid Search / regret of Zeus, with failures free / charged: {each}.")  # fmt: skip
    note = (
        f"The worst case is {worst}. With failed runs charged it is {max(charged.values()):.0f} times; with a search "
        f"that begins at b0, {from_b0['free']:.0f} times (free) and {from_b0['charged']:.0f} times (charged)."
    )
    numbers = (
        below,
        Number("figure_19.worst_ratio", free[worst], float(by_seed.min()), float(by_seed.max()), note),
    )
    return Result(panels, numbers)


def draw_regret(axes: Axes, panel: Panel) -> None:
    """Lines with bands. The axis is logarithmic, as the methods differ by up to a factor of 1000.

    By luck, a seed can be below the expected least cost for a while. Around 0 the axis is linear, so that it shows.
    """
    divisor, prefix = drawing.scaled(panel.column("high"))
    for method in panel.values("method"):
        some = panel.where(method=method)
        colour = style.METHODS[method]
        drawing.line_with_band(axes, some, "recurrence", "cumulative_regret", colour, method, divisor)
        if method == FREE:  # dashed, as it often lies on top of Grid Search
            axes.lines[-1].set_linestyle("--")
    axes.set(xlabel="Recurrence", ylabel=f"Cumulative regret ({prefix}J)")
    low, high = min(panel.column("low")) / divisor, max(panel.column("high")) / divisor
    powers = [10.0**power for power in range(-4, 5)]
    if low > 0:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.6)
    else:
        linear = float(10.0 ** np.ceil(np.log10(max(-low, high / 1e4))))
        axes.set_yscale("symlog", linthresh=linear, linscale=0.5)
        axes.set_ylim(1.2 * low, high * 1.6)
        powers = [-linear, 0.0, *(power for power in powers if power >= linear)]
    drawing.plain_ticks(axes.yaxis, powers)
    drawing.legend_below(axes)


def path_panel(study: Study, case: Case, name: str) -> Panel:
    """The expected regret of each configuration, and all trials of the first seed."""
    workload = study.workload(case)
    least, model = regret.optimum(workload, case.eta), workload.cost_model(case.eta)
    lines: list[tuple[Cell, ...]] = []
    for size, limit_watts in workload.pairs:
        cost = model.of(workload.expected(size, limit_watts))
        over = cost / least - 1 if workload.always_converges(size) else None
        lines.append(("configuration", None, size, limit_watts, over))
    for number, recurrence in enumerate(study.tries(case), start=1):
        lines += [("try", number, one.decision.batch_size, one.limit_watts, None) for one in recurrence.tries]
    trials = sum(line[0] == "try" for line in lines)
    method = {policy: word for word, policy in COMPARED.items()}[case.policy]
    title = f"{case.workload}: the {trials} trials of {method} (blue square: the last)"
    return Panel(name, title, ("kind", "recurrence", "batch_size", "limit_watts", "regret"), rows(lines), HALF)


def two_paths(study: Study) -> Result:
    policies = ("paper", "grid")
    panels = tuple(path_panel(study, Case("DeepSpeech2", policy), f"figure_08{at}")
                   for at, policy in zip("ab", policies, strict=True))  # fmt: skip
    zeus, grid = (sum(_on_best(study, Case(name, policy)) for name in study.main) for policy in policies)
    every = len(study.main) * study.seeds
    note = f"Runs (workload and seed) that end on the best pair: Zeus {zeus} of {every}, Grid Search {grid} of {every}."
    return Result(panels, (Number("figure_08.grid_misses", "yes" if grid < min(zeus, every) else "no", note=note),))


def _on_best(study: Study, case: Case) -> int:
    """In how many seeds the last recurrence used the pair with the least expected cost."""
    best = regret.best_pair(study.workload(case), case.eta)
    return sum(choice == best for choice in study.past(case).last)


def all_paths(policy: str, name: str, study: Study) -> Result:
    named = zip("abcdef", study.main, strict=True)
    return Result(tuple(path_panel(study, Case(workload, policy), f"{name}{at}") for at, workload in named))


def main_cases(study: Study) -> list[Case]:
    return [case for case in cases_by_gpu(study) if case.gpu == MAIN]


FIGURES: Final = (
    Figure("figure_06", "Energy and time of the last five recurrences, relative to Default (V100)",
           ratios, draw_ratios, main_cases),
    Figure("figure_07", "Cumulative regret of Zeus and Grid Search (V100)",
           two_regrets, draw_regret, partial(regret_cases, lambda _: FIGURE_7)),
    Figure("figure_08", "Search paths of Zeus and Grid Search for DeepSpeech2 (V100)",
           two_paths, draw_search, main_cases),
    Figure("figure_19", "Cumulative regret for all workloads (V100)",
           all_regrets, draw_regret, partial(regret_cases, lambda study: study.main)),
    Figure("figure_20", "Search paths of Zeus for all workloads (V100)",
           partial(all_paths, "paper", "figure_20"), draw_search),
    Figure("figure_21", "Search paths of Grid Search for all workloads (V100)",
           partial(all_paths, "grid", "figure_21"), draw_search),
    Figure("figure_23", "Energy and time of the last five recurrences, by GPU",
           ratios_by_gpu, draw_ratios, cases_by_gpu),
)  # fmt: skip
