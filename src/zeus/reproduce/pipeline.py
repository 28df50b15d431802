"""The steps of `zeus reproduce`: replay what the figures need, compute, draw, compare, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, TypeAlias

from zeus.reproduce import comparison, provenance, report, style
from zeus.reproduce.figures import FIGURES, figure, reference
from zeus.reproduce.panel import Panel, Result
from zeus.reproduce.study import SEEDS, Study
from zeus.simulate.workers import spread

ALL: Final = tuple(FIGURES)

# Measured for all figures on 2 cores of an AMD EPYC (2026-11-16), in seconds of one core.
REPLAY_SECONDS: Final = 1.6  # per seed, spread over the processes
DRAW_SECONDS: Final = 23.0  # spread over the processes
COMPUTE_SECONDS: Final = 68.0  # in one process, most of it for Figure 10


Begin: TypeAlias = Callable[[str, int], Callable[[int], object]]  # a phase and its steps -> to call with those done


def reproduce(
    study: Study,
    out: Path,
    names: Sequence[str] = ALL,
    processes: int = 1,
    dpi: int = style.DPI,
    begin: Begin = lambda phase, steps: lambda done: None,
) -> list[comparison.ComparedRow]:
    """Write every panel, the JSON files and report.html to `out`. Return the rows of the report."""
    figures = [figure(name) for name in names]
    source = provenance.of(study.seeds, list(study.workloads), names, input_files(study, names))
    cases = list(dict.fromkeys(case for one in figures for case in one.cases(study)))
    study.prepare(cases, processes, begin("replaying", len(cases)))
    step = begin("computing", len(figures))
    results = {}
    for one in figures:
        results[one.name] = one.compute(study)
        step(1)
    rows = comparison.table(_wanted(names), (number for result in results.values() for number in result.numbers))
    out.mkdir(parents=True, exist_ok=True)
    drawn = _draw(results, out / "figures", processes, dpi, begin)
    sections = [
        report.Section(FIGURES[name], result.remark, drawn[name], [r for r in rows if r.expected.figure == name])
        for name, result in results.items()
    ]
    (out / "report.html").write_text(report.html(sections, rows, facts(study), source), encoding="utf-8")
    _write_json(out / "report.json", [row.to_json() for row in rows])
    _write_json(out / "provenance.json", source.to_json())
    _write_json(out / "summary.json", {kind: asdict(count) for kind, count in comparison.counts(rows).items()})
    return rows


def facts(study: Study) -> list[str]:
    """How the numbers were made, for people."""
    seeds = {1: "one seed", 2: "two seeds"}.get(study.seeds, f"{study.seeds} seeds")
    lines = [
        f"Made from the published traces of {', '.join(study.workloads)}, with {seeds}. Unless noted, "
        "η = 0.5, β = 2, and there are 2·|B|·|P| recurrences.",
        "Default is the default batch size at the highest power limit. Whiskers and bands show the range over seeds.",
    ]
    if study.quick:
        lines.append(
            f"A quick run, to check that everything works: {seeds} instead of {SEEDS}, small pictures, and the first "
            "slices of Figure 10. More numbers are outside their tolerance than in a whole run."
        )
    return lines


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def input_files(study: Study, names: Sequence[str]) -> list[provenance.InputFile]:
    """Compare the files that these figures read with the published ones. Given groups replace Figure 9's."""
    published = [name for name in names if name != "figure_09" or study.groups is None]
    return provenance.check(study.traces, study.data, published)


def expected_seconds(seeds: int, processes: int) -> float:
    """How long all figures take if every process has a core for itself."""
    return (REPLAY_SECONDS * seeds + DRAW_SECONDS) / processes + COMPUTE_SECONDS


def expected() -> list[comparison.Expected]:
    """All numbers to compare with: the paper's, and the other simulator's."""
    return [*comparison.read(), *reference.expected()]


def _wanted(names: Sequence[str]) -> list[comparison.Expected]:
    """The expected numbers of these figures. With all figures, also those that cannot be computed."""
    return [one for one in expected() if one.figure in names or (one.missing and set(names) == set(ALL))]


def _picture(task: tuple[str, Panel, int]) -> bytes:
    name, panel, dpi = task
    return style.picture(panel, FIGURES[name].draw, dpi)


def _draw(
    results: Mapping[str, Result], folder: Path, processes: int, dpi: int, begin: Begin
) -> dict[str, list[report.Picture]]:
    folder.mkdir(exist_ok=True)
    tasks = [(name, panel, dpi) for name, result in results.items() for panel in result.panels]
    drawn: dict[str, list[report.Picture]] = {name: [] for name in results}
    step = begin("drawing", len(tasks))
    for (name, panel, _), png in zip(tasks, spread(_picture, tasks, processes), strict=True):
        (folder / f"{panel.name}.csv").write_text(panel.csv(), encoding="utf-8")
        (folder / f"{panel.name}.png").write_bytes(png)
        drawn[name].append(report.Picture(panel, png))
        step(1)
    return drawn
