"""Writes `docs/coverage.md` from `coverage.toml`. `make docs` runs this.

python docs/assets/coverage_page.py
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).with_name("coverage.toml")
PAGE = Path(__file__).parents[1] / "coverage.md"
VERDICTS = {
    "whole": "It is there, and does what the paper says.",
    "differs": "It is there, but a number, a default or a reading is another.",
    "partial": "Some of it is there or was checked.",
    "missing": "It is not there.",
}
HEAD = """\
# The paper, claim by claim

What the paper and the blog post of its authors claim: equations, lines of the algorithms, mechanisms, figures and
numbers, and what came out in Zeus. [A data file](assets/coverage.toml), from which this page is made, says where each
claim is in the code, and which tests and rows of [the report](reproducing.md#the-published-report) check it. "(left
open)" marks what the paper does not say and Zeus had to decide.
"""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper."""

    number: int
    section: str
    claim: str
    where: str
    checked: str
    verdict: str
    reason: str = ""


def claims() -> list[Claim]:
    """All claims, numbered from 1."""
    sections = tomllib.loads(DATA.read_text(encoding="utf-8"))["section"]
    rows = [(section["title"], row) for section in sections for row in section["claim"]]
    return [Claim(number, title, **row) for number, (title, row) in enumerate(rows, 1)]


def page() -> str:
    """The page as it must be."""
    rows = claims()
    counts = Counter(row.verdict for row in rows)
    lines = [HEAD, "| verdict | rows | meaning |", "|---|---|---|"]
    lines += [f"| {verdict} | {counts[verdict]} | {meaning} |" for verdict, meaning in VERDICTS.items()]
    lines += [f"| all | {len(rows)} | |"]
    for title in dict.fromkeys(row.section for row in rows):
        section = [row for row in rows if row.section == title]
        differ = [row for row in section if row.verdict != "whole"]
        lines += ["", f"## {title}"]
        if differ:
            lines += ["", "| claim | what came out |", "|---|---|"]
            lines += [f"| **{row.number}** {row.claim} | {row.verdict}: {row.reason} |" for row in differ]
        lines += ["", "Whole:", ""]
        lines += [f"- **{row.number}** {row.claim}" for row in section if row not in differ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
