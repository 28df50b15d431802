"""Writes report.html: every picture with the paper's numbers and ours. One file, no script, nothing fetched."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from html import escape
from typing import Final

from zeus.reproduce.compare import ComparedRow, Counts, counts
from zeus.reproduce.expected import Basis, Kind
from zeus.reproduce.inputs import WORDS, InputFile, Match
from zeus.reproduce.provenance import CONSTRAINTS, Provenance

HEADINGS: Final[dict[Kind, str]] = {
    "paper": "The paper's own numbers",
    "simulator": "Numbers of another simulator of the paper's policy, which are not in the paper",
}
BASES: Final[dict[Basis, str]] = {
    "exact": "",
    "digits": "the paper's last digit",
    "choice": "our choice",
    "scatter": "our own scatter over seeds",
}
PIXELS_PER_INCH: Final = 84  # of a picture in a wide page: letters of 8 points are 9 pixels high, and three panels fit
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --ground: #fff; --line: #d8dee4; --band: #f5f7f9;
  --good: #00664a; --bad: #9a3412; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa4ae; --ground: #14171a; --line: #353b42;
  --band: #1c2126; --good: #4fd1a5; --bad: #f5a26b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 87rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--ground); overflow-wrap: break-word; }
h1 { margin: 0 0 .3rem; } h2 { margin: 2.5rem 0 .5rem; font-size: 1.15rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
a { color: inherit; } nav { columns: 3 18rem; font-size: .9rem; } nav a { display: block; }
.remark, .note, .where { color: var(--soft); } .note { font-size: .85rem; max-width: 44rem; }
.pictures { display: flex; flex-wrap: wrap; gap: .8rem; margin: .8rem 0; align-items: start; align-content: start; }
.numbers { flex: 1 1 30rem; min-width: 0; padding-left: .5rem; }
figure { margin: 0; max-width: 100%; } .pictures img { background: #fff; border-radius: 6px; width: 100%;
  border: 1px solid var(--line); height: auto; display: block; cursor: zoom-in; } figcaption { display: none; }
figure:target { position: fixed; inset: 0; z-index: 1; overflow: auto; background: #fff; color: #1b1f24;
  width: auto !important; padding: .5rem; }
figure:target img { width: auto; max-width: none; border: 0; } figure:target figcaption { display: block;
  position: sticky; left: 0; top: 0; width: fit-content; padding: .3rem .8rem; background: #f5f7f9; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top;
  padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line); }
th { font-size: .85rem; color: var(--soft); } td.n { white-space: nowrap; font-variant-numeric: tabular-nums; }
.n .note { white-space: normal; }
td code { overflow-wrap: anywhere; }
.yes { color: var(--good); font-weight: 600; } .no, .warn { color: var(--bad); font-weight: 600; }
.none { color: var(--soft); }
.sum { display: flex; gap: 2rem; background: var(--band); border-radius: 8px; padding: .8rem 1.2rem; margin: 1rem 0;
  flex-wrap: wrap; } .sum b { font-size: 1.4rem; display: block; }
.heading { margin: 1rem 0 0; font-weight: 600; } .heading + .sum { margin-top: .3rem; }
@media (max-width: 44rem) { body { padding: 1rem; } table, tbody, tr, td { display: block; } th { display: none; }
  tr { border-bottom: 1px solid var(--line); padding: .4rem 0; } td { border: 0; padding: .1rem 0; }
  td:empty { display: none; }
  td[data-is]::before { content: attr(data-is) ": "; color: var(--soft); font-weight: 400; } }
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the report."""

    name: str
    title: str
    inches: float  # its width
    png: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """A figure, table or section of the paper in the report."""

    name: str
    title: str
    remark: str
    pictures: tuple[Picture, ...]
    rows: tuple[ComparedRow, ...]
    who: str = "Paper says"


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
    summary = "".join(_counted(HEADINGS[kind], count) for kind, count in counts(rows).items() if any(astuple(count)))
    outside = [row for row in rows if row.within is False]
    missing = [row for row in rows if row.within is None and row.kind != "setting"]
    links = "".join(f'<a href="#{s.name}">{label(s.name)}: {escape(s.title)}</a>' for s in sections)
    facts = (*facts, *provenance.sentences)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Zeus: the paper's figures, reproduced</title><style>{STYLE}</style></head><body>",
            "<h1>The paper's figures, reproduced</h1>",
            f'<p class="remark">{"<br>".join(escape(fact) for fact in facts)}</p>',
            _warning(provenance.inputs),
            summary,
            f'<nav>{links}<a href="#inputs">Input files</a></nav>',
            "<h2>Numbers outside the tolerance</h2>" + _table(outside) if outside else "",
            "<h2>Numbers that were not computed</h2>" + _table(missing) if missing else "",
            *(_section(section) for section in sections),
            _inputs(provenance.inputs),
            "</body></html>",
        ]
    )


def _section(section: Section) -> str:
    pictures = "".join(_picture(one, section.name) for one in section.pictures)
    remark = f'<p class="remark">{escape(section.remark)}</p>' if section.remark else ""
    heading = f'<h2 id="{section.name}">{label(section.name)}: {escape(section.title)}</h2>'
    table = f'<div class="numbers">{_table(section.rows, section.who)}</div>' if section.rows else ""
    return f'{heading}{remark}<div class="pictures">{pictures}{table}</div>'


def _picture(picture: Picture, section: str) -> str:
    """A picture that fills the window at its full size when clicked, without a script."""
    name, title = f"picture_{picture.name}", escape(picture.title)
    image = f'<img alt="{title}" src="data:image/png;base64,{base64.b64encode(picture.png).decode()}">'
    return (
        f'<figure id="{name}" style="width: {picture.inches * PIXELS_PER_INCH:.0f}px">'
        f'<figcaption><a href="#{section}">Close</a></figcaption>'
        f'<a href="#{name}" title="Open at full size">{image}</a></figure>'
    )


def _warning(inputs: Sequence[InputFile]) -> str:
    differing = [one.name for one in inputs if one.match is Match.DIFFERS]
    if not differing:
        return ""
    return (
        f'<p class="warn">These input files differ from the published ones: {escape(", ".join(differing))}. '
        "Numbers made from them cannot be compared with the published report.</p>"
    )


def _inputs(inputs: Sequence[InputFile]) -> str:
    kinds = {Match.SAME: "yes", Match.DIFFERS: "no", Match.ABSENT: "none"}
    lines = []
    for one in inputs:
        source = one.source
        commit = f"commit {source.commit}" if source.commit else "commit not known"
        place = ", ".join(part for part in (source.repository, source.path, commit) if part)
        lines.append(
            f'<tr><td>{escape(one.name)}<div class="note">{escape(source.what)}</div></td>'
            f'<td data-is="State" class="{kinds[one.match]}">{WORDS[one.match]}</td>'
            f'<td data-is="From">{escape(place)}<div class="note">Licence: {escape(source.licence)}</div></td>'
            f'<td data-is="SHA-256"><code>{one.published_sha256}</code>{_other(one)}</td></tr>'
        )
    head = "<tr><th>File</th><th>State</th><th>Published at</th><th>SHA-256 as published</th></tr>"
    return (
        '<h2 id="inputs">Input files</h2>'
        '<p class="remark">Each file is compared with the published one by its SHA-256. '
        f"The repository's {CONSTRAINTS} holds the versions of all packages behind the published report.</p>"
        f"<table>{head}{''.join(lines)}</table>"
    )


def _other(one: InputFile) -> str:
    return f"<div>here: <code>{one.sha256}</code></div>" if one.match is Match.DIFFERS else ""


def _table(rows: Sequence[ComparedRow], who: str = "Paper says") -> str:
    head = f"<tr><th>Quantity</th><th>{who}</th><th>We get</th><th>Tolerance</th><th>Within?</th></tr>"
    return f"<table>{head}{''.join(_row(row, who) for row in rows)}</table>"


def _row(row: ComparedRow, who: str) -> str:
    unknown = "not compared" if row.kind == "setting" else "not computed"
    kind, word = {True: ("yes", "yes"), False: ("no", "no"), None: ("none", unknown)}[row.within]
    note = f'<div class="note">{escape(row.note)}</div>' if row.note else ""
    cells = "".join(_cell(value, row.unit, what) for value, what in ((row.paper, who), (row.ours, "We get")))
    return (
        f'<tr><td>{escape(row.quantity)} <span class="where">({escape(row.where)})</span>{note}</td>{cells}'
        f'<td class="n" data-is="Tolerance">{_tolerance(row)}</td><td class="{kind}" data-is="Within?">{word}</td></tr>'
    )


def _tolerance(row: ComparedRow) -> str:
    if row.tolerance is None or row.tolerance_basis is None:
        return ""
    amount = f"± {escape(shown(row.tolerance, row.unit))}" if row.tolerance else "exact"
    basis = BASES[row.tolerance_basis]
    return f'{amount}<div class="note">{basis}</div>' if basis else amount


def _counted(heading: str, count: Counts) -> str:
    judged = count.within + count.outside
    words = {
        "compared": judged,
        "within tolerance": count.within,
        "outside": count.outside,
        "not computable": count.not_computable,
    }
    cells = "".join(f"<div><b>{number}</b>{word}</div>" for word, number in words.items())
    return f'<p class="heading">{heading}</p><div class="sum">{cells}</div>'


def _cell(value: float | str | None, unit: str, what: str) -> str:
    kind = "" if isinstance(value, str) else ' class="n"'  # text may wrap
    return f'<td{kind} data-is="{what}">{escape(shown(value, unit))}</td>'


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
