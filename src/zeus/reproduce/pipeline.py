"""The whole of `zeus reproduce`: replay what the figures ask for, compute, draw, compare, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from zeus.errors import InputError
from zeus.reproduce import compare, expected, reference, report, style
from zeus.reproduce.panel import Panel, Result
from zeus.reproduce.study import Case, Study
from zeus.simulate.parallel import spread

FIGURES: Final = (
    "table_1",
    *(f"figure_{number:02}" for number in (1, 2, *range(4, 24))),
    "section_65",
    "section_66",
    "reference",
)


MODULES: Final = {"section_65": "overhead", "section_66": "pollux"}  # where the module has another name


class Module(Protocol):
    """What the module of a figure has; where it replays, `cases(study)` says what, so that it can be done ahead."""

    NAME: str
    TITLE: str

    def compute(self, study: Study) -> Result:
        """The numbers."""

    def draw(self, axes: Any, panel: Panel) -> None:
        """The picture of one panel."""


def module(name: str) -> Module:
    """The figure of this name."""
    if name not in FIGURES:
        raise InputError(f"{name!r} is not a figure. Known: {', '.join(FIGURES)}.")
    package = "zeus.reproduce" if name == "reference" else "zeus.reproduce.figures"
    return cast(Module, import_module(f"{package}.{MODULES.get(name, name)}"))


class Steps(Protocol):
    """Is told how far a run has come."""

    def begin(self, what: str, total: int) -> None:
        """So many steps of this follow."""

    def step(self) -> None:
        """One is done."""


class NoProgress:
    """Shows nothing."""

    def begin(self, what: str, total: int) -> None:
        """So many steps of this follow."""

    def step(self) -> None:
        """One is done."""


SILENT: Final = NoProgress()


def reproduce(
    study: Study,
    out: Path,
    names: Sequence[str] = FIGURES,
    processes: int = 1,
    dpi: int = style.DPI,
    steps: Steps = SILENT,
) -> list[compare.ComparedRow]:
    """Write every panel, report.json and report.html to `out`; the rows of the report."""
    modules = [module(name) for name in names]
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
        f"From the published traces of {', '.join(study.workloads)}; {study.seeds} seeds; η = 0.5, β = 2 and "
        "2·|B|·|P| recurrences unless said otherwise.",
        "Default is the default batch size at the highest power limit. Whiskers and bands are the range over seeds.",
    )
    (out / "report.html").write_text(report.html(sections, rows, facts), encoding="utf-8")
    text = json.dumps([row.to_json() for row in rows], indent=2, ensure_ascii=False, allow_nan=False)
    (out / "report.json").write_text(text + "\n", encoding="utf-8")
    return rows


def picture(task: tuple[str, Panel, int]) -> bytes:
    """One panel as PNG."""
    name, panel, dpi = task
    return style.picture(panel, module(name).draw, dpi)


def _cases(one: Module, study: Study) -> Iterable[Case]:
    ask: Callable[[Study], Iterable[Case]] | None = getattr(one, "cases", None)
    return ask(study) if ask else ()


def _wanted(names: Sequence[str]) -> list[expected.Expected]:
    """The numbers of these figures, and those that nobody can compute."""
    every = [*expected.read(), *reference.expected()]
    return [one for one in every if one.figure in names or (one.missing and set(names) == set(FIGURES))]


def _draw(
    results: dict[str, Result], folder: Path, processes: int, dpi: int, steps: Steps
) -> dict[str, list[tuple[str, bytes]]]:
    folder.mkdir(exist_ok=True)
    tasks = [(name, panel, dpi) for name, result in results.items() for panel in result.panels]
    drawn: dict[str, list[tuple[str, bytes]]] = {name: [] for name in results}
    steps.begin("drawing", len(tasks))
    for (name, panel, _), png in zip(tasks, spread(picture, tasks, processes), strict=True):
        (folder / f"{panel.name}.csv").write_text(panel.csv(), encoding="utf-8")
        (folder / f"{panel.name}.png").write_bytes(png)
        drawn[name].append((panel.title, png))
        steps.step()
    return drawn


def _sections(
    results: dict[str, Result], drawn: dict[str, list[tuple[str, bytes]]], rows: Sequence[compare.ComparedRow]
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
