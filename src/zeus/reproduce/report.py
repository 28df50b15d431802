"""Writes report.html: every picture with the paper's numbers and ours. One file, no script, nothing fetched.

Its parts stand in the template beside this file, also named report.html.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Final

from zeus.reproduce.comparison import Basis, ComparedRow, Kind, counts
from zeus.reproduce.panel import Figure, Panel
from zeus.reproduce.provenance import CONSTRAINTS, WORDS, InputFile, Match, Provenance

HEADINGS: Final[dict[Kind, str]] = {
    "paper": "The paper's own numbers",
    "input": "Numbers that restate inputs: what the traces and the algorithm fix, whatever Zeus does",
    "simulator": "Numbers of another simulator of the paper's policy, which are not in the paper",
}
BASES: Final[dict[Basis, str]] = {
    "exact": "",
    "digits": "the paper's last digit",
    "choice": "our choice",
    "scatter": "our own scatter over seeds",
}
PIXELS_PER_INCH: Final = 84  # of a picture in a wide page: letters of 8 points are 9 pixels high, and three panels fit


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the report."""

    panel: Panel
    png: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """A figure, table or section of the paper in the report."""

    figure: Figure
    remark: str
    pictures: Sequence[Picture]
    rows: Sequence[ComparedRow]


def label(name: str) -> str:
    """The name of a section for people.

    >>> label("figure_06"), label("section_65"), label("table_1"), label("reference")
    ('Figure 6', '§6.5', 'Table 1', 'Reference')
    """
    kind, _, number = name.partition("_")
    if kind == "section":
        return "§" + ".".join(number)
    return f"{kind.capitalize()} {number.lstrip('0')}".strip()


def html(sections: Sequence[Section], rows: Sequence[ComparedRow], facts: Sequence[str], provenance: Provenance) -> str:
    """The whole page. `rows` are all comparisons, also those without a section. `facts` say how it was made."""
    outside = [row for row in rows if row.within is False]
    missing = [row for row in rows if row.within is None and row.expected.kind != "setting"]
    differing = [one.name for one in provenance.inputs if one.match is Match.DIFFERS]
    return _fill(
        "page",
        facts=Html("<br>".join(escape(fact) for fact in (*facts, *provenance.sentences))),
        warning=_fill("warning", files=", ".join(differing)) if differing else "",
        sums=_join(
            _fill("sum", heading=HEADINGS[kind], compared=count.compared, within=count.within, outside=count.outside,
                  not_computable=count.not_computable)
            for kind, count in counts(rows).items() if any(astuple(count))
        ),
        links=_join(_fill("link", name=s.figure.name, label=label(s.figure.name), title=s.figure.title)
                    for s in sections),
        outside=_list("Numbers outside the tolerance", outside),
        missing=_list("Numbers that were not computed", missing),
        sections=_join(map(_section, sections)),
        constraints=CONSTRAINTS,
        inputs=_join(map(_input, provenance.inputs)),
    )  # fmt: skip


@cache
def _parts() -> dict[str, Template]:
    text = (files(__package__) / "report.html").read_text(encoding="utf-8")
    _, *parts = re.split(r"<!-- part: (\w+) -->\n", text)
    return {name: Template(part.removesuffix("\n")) for name, part in zip(parts[::2], parts[1::2], strict=True)}


def _fill(part: str, **values: object) -> Html:
    """This part of the template with these values, which are escaped unless they are HTML."""
    safe = {name: value if isinstance(value, Html) else escape(str(value)) for name, value in values.items()}
    return Html(_parts()[part].substitute(safe))


def _join(parts: Iterable[Html]) -> Html:
    return Html("\n".join(parts))


def _list(heading: str, rows: Sequence[ComparedRow]) -> Html:
    return _fill("list", heading=heading, table=_table(rows, "Paper says")) if rows else Html()


def _section(section: Section) -> Html:
    one = section.figure
    return _fill(
        "section",
        name=one.name,
        label=label(one.name),
        title=one.title,
        remark=section.remark,
        pictures=_join(_picture(picture, one.name) for picture in section.pictures),
        numbers=_fill("numbers", table=_table(section.rows, one.who)) if section.rows else "",
    )


def _picture(picture: Picture, section: str) -> Html:
    """A picture that fills the window at its full size when clicked, without a script."""
    panel = picture.panel
    source = f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"
    pixels = f"{panel.size[0] * PIXELS_PER_INCH:.0f}"
    return _fill("picture", name=panel.name, title=panel.title, section=section, pixels=pixels, source=source)


def _table(rows: Sequence[ComparedRow], who: str) -> Html:
    return _fill("table", who=who, rows=_join(_row(row, who) for row in rows))


def _row(row: ComparedRow, who: str) -> Html:
    expected = row.expected
    unknown = "not compared" if expected.kind == "setting" else "not computed"
    colour, verdict = {True: ("yes", "yes"), False: ("no", "no"), None: ("none", unknown)}[row.within]
    return _fill(
        "row",
        quantity=expected.quantity,
        where=expected.where,
        note=_note(row.note),
        paper=_cell(expected.paper, expected.unit, who),
        ours=_cell(row.ours, expected.unit, "We get"),
        tolerance=_tolerance(row),
        colour=colour,
        verdict=verdict,
    )


def _note(text: str) -> Html:
    return _fill("note", text=text) if text else Html()


def _tolerance(row: ComparedRow) -> Html:
    basis = row.expected.tolerance_basis
    if row.tolerance is None or basis is None:
        return Html()
    amount = f"± {shown(row.tolerance, row.expected.unit)}" if row.tolerance else "exact"
    return Html(escape(amount) + _note(BASES[basis]))


def _cell(value: float | str | None, unit: str, what: str) -> Html:
    return _fill("text" if isinstance(value, str) else "number", what=what, value=shown(value, unit))


def _input(one: InputFile) -> Html:
    source = one.source
    commit = f"commit {source.commit}" if source.commit else "commit not known"
    return _fill(
        "input",
        name=one.name,
        what=_note(source.what),
        colour={Match.SAME: "yes", Match.DIFFERS: "no", Match.ABSENT: "none"}[one.match],
        state=WORDS[one.match],
        place=", ".join(part for part in (source.repository, source.path, commit) if part),
        licence=_note(f"Licence: {source.licence}"),
        published=one.published_sha256,
        here=_fill("here", sha256=one.sha256) if one.match is Match.DIFFERS else "",
    )


def shown(value: float | str | None, unit: str) -> str:
    """Format a number for people.

    >>> shown(23.846, "%"), shown(250.0, "W"), shown(None, "W"), shown("yes", ""), shown(1.2e6, "jobs")
    ('23.85 %', '250 W', '–', 'yes', '1,200,000 jobs')
    >>> shown(6.8e7, "J"), shown(6.04e4, "J")
    ('68 MJ', '60.4 kJ')
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return f"{value} {unit}".strip()
    if unit == "J":
        size, unit = (1e6, "MJ") if abs(value) >= 1e6 else (1e3, "kJ")
        value /= size
    text = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{text} {unit}".strip()
