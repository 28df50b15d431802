"""The steps of `zeus reproduce`: replay what the figures need, compute, draw, compare, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from zeus.errors import InputError
from zeus.reproduce import compare, expected, inputs, provenance, reference, report, style
from zeus.reproduce.panel import Panel, Result
from zeus.reproduce.study import Case, Study
from zeus.simulate.workers import spread

FIGURES: Final = (
    "table_1",
    *(f"figure_{number:02}" for number in range(1, 24)),
    "section_65",
    "section_66",
    "reference",
)


MODULES: Final = {
    "section_65": "overhead",
    "section_66": "pollux",
}  # module names that differ from the name of the figure

# Measured for all figures on 2 cores of an AMD EPYC (2026-11-16), in seconds of one core.
REPLAY_SECONDS: Final = 1.6  # per seed, spread over the processes
DRAW_SECONDS: Final = 23.0  # spread over the processes
COMPUTE_SECONDS: Final = 68.0  # in one process, most of it for Figure 10


class Module(Protocol):
    """The module of a figure. It may also have `cases(study)`, the replays that it needs, so that they run ahead."""

    NAME: str
    TITLE: str

    def compute(self, study: Study) -> Result: ...

    def draw(self, axes: Any, panel: Panel) -> None:
        """Draw one panel."""


def module(name: str) -> Module:
    """Import the module of a figure. Raises InputError if there is no such figure."""
    if name not in FIGURES:
        raise InputError(f"unknown figure {name!r}. Known figures: {', '.join(FIGURES)}.")
    package = "zeus.reproduce" if name == "reference" else "zeus.reproduce.figures"
    return cast(Module, import_module(f"{package}.{MODULES.get(name, name)}"))


class Steps(Protocol):
    """Shows the progress of a run."""

    def begin(self, what: str, total: int) -> None:
        """A new phase with this many steps begins."""

    def step(self) -> None:
        """One step is done."""


class NoProgress:
    """Shows no progress."""

    def begin(self, what: str, total: int) -> None:
        pass

    def step(self) -> None:
        pass


SILENT: Final = NoProgress()


def reproduce(
    study: Study,
    out: Path,
    names: Sequence[str] = FIGURES,
    processes: int = 1,
    dpi: int = style.DPI,
    steps: Steps = SILENT,
) -> list[compare.ComparedRow]:
    """Write every panel, the JSON files and report.html to `out`. Return the rows of the report."""
    modules = [module(name) for name in names]
    source = provenance.of(study.seeds, list(study.workloads), names, input_files(study, names))
    cases = list(dict.fromkeys(case for one in modules for case in _cases(one, study)))
    steps.begin("replaying", len(cases))
    study.prepare(cases, processes, steps.step)
    steps.begin("computing", len(modules))
    results = {}
    for one in modules:
        results[one.NAME] = one.compute(study)
        steps.step()
    rows = compare.table(_wanted(names), (number for result in results.values() for number in result.numbers))
    out.mkdir(parents=True, exist_ok=True)
    drawn = _draw(results, out / "figures", processes, dpi, steps)
    sections = _sections(results, drawn, rows)
    facts = (
        f"Made from the published traces of {', '.join(study.workloads)}, with {study.seeds} seeds. Unless noted, "
        "η = 0.5, β = 2, and there are 2·|B|·|P| recurrences.",
        "Default is the default batch size at the highest power limit. Whiskers and bands show the range over seeds.",
    )
    (out / "report.html").write_text(report.html(sections, rows, facts, source), encoding="utf-8")
    _write_json(out / "report.json", [row.to_json() for row in rows])
    _write_json(out / "provenance.json", source.to_json())
    _write_json(out / "summary.json", {kind: asdict(count) for kind, count in compare.counts(rows).items()})
    return rows


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def input_files(study: Study, names: Sequence[str]) -> list[inputs.InputFile]:
    """Compare the files that these figures read with the published ones. Given groups replace Figure 9's."""
    published = [name for name in names if name != "figure_09" or study.groups is None]
    return inputs.check(study.traces, study.data, published)


def expected_seconds(seeds: int, processes: int) -> float:
    """How long all figures take if every process has a core for itself."""
    return (REPLAY_SECONDS * seeds + DRAW_SECONDS) / processes + COMPUTE_SECONDS


def picture(task: tuple[str, Panel, int]) -> bytes:
    name, panel, dpi = task
    return style.picture(panel, module(name).draw, dpi)


def _cases(one: Module, study: Study) -> Iterable[Case]:
    ask: Callable[[Study], Iterable[Case]] | None = getattr(one, "cases", None)
    return ask(study) if ask else ()


def _wanted(names: Sequence[str]) -> list[expected.Expected]:
    """The expected numbers of these figures. With all figures, also those that cannot be computed."""
    every = [*expected.read(), *reference.expected()]
    return [one for one in every if one.figure in names or (one.missing and set(names) == set(FIGURES))]


def _draw(
    results: dict[str, Result], folder: Path, processes: int, dpi: int, steps: Steps
) -> dict[str, list[report.Picture]]:
    folder.mkdir(exist_ok=True)
    tasks = [(name, panel, dpi) for name, result in results.items() for panel in result.panels]
    drawn: dict[str, list[report.Picture]] = {name: [] for name in results}
    steps.begin("drawing", len(tasks))
    for (name, panel, _), png in zip(tasks, spread(picture, tasks, processes), strict=True):
        (folder / f"{panel.name}.csv").write_text(panel.csv(), encoding="utf-8")
        (folder / f"{panel.name}.png").write_bytes(png)
        drawn[name].append(report.Picture(panel.name, panel.title, panel.size[0], png))
        steps.step()
    return drawn


def _sections(
    results: dict[str, Result], drawn: dict[str, list[report.Picture]], rows: Sequence[compare.ComparedRow]
) -> list[report.Section]:
    return [
        report.Section(
            name,
            module(name).TITLE,
            result.remark,
            tuple(drawn[name]),
            tuple(row for row in rows if row.figure == name),
            getattr(module(name), "WHO", "Paper says"),
        )
        for name, result in results.items()
    ]
