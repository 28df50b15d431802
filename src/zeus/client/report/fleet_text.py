"""The fleet as text for a terminal and as one HTML page for mail."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from zeus.ledger.saving_text import is_seen
from zeus.tariff.rates import JOULES_PER_KWH
from zeus.tariff.text import digits, grams, money

Json = dict[str, Any]
Table = tuple[str, list[str], list[list[str]]]  # a title, headings and rows

HEADINGS = ["used", "saved", "money", "saved money", "CO2e", "saved CO2e", "recurrences", "failed"]
STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#1b1f24}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{padding:.25em .8em .25em 0;text-align:right}"
    "td:first-child,th:first-child{text-align:left}th{border-bottom:1px solid #999}"
    "h2{font-size:1.1em;margin:1.2em 0 .2em}"
)


def title(told: Json) -> str:
    """What the report is about."""
    weeks = [row["week"] for row in told["weeks"]]
    return f"Zeus: week {weeks[0]}" if len(weeks) == 1 else f"Zeus: weeks {weeks[0]} to {weeks[-1]}"


def summary(told: Json) -> str:
    """The whole fleet in one sentence.

    >>> summary({"totals": {"joules": 7.2e6, "saved_joules": 3.6e6, "saved_joules_error": 7.2e5}, "currency": "",
    ...          "jobs": 2, "uncounted": 0})
    '2 jobs used 2.00 kWh and saved 1.00 ± 0.20 kWh.'
    >>> summary({"totals": {"joules": 0.0, "saved_joules": None}, "currency": "",
    ...          "jobs": 9, "uncounted": 1, "outdated": 2})
    '9 jobs used 0.00 kWh and what they saved is not known. 1 job is not counted yet. 2 jobs are not up to date yet.'
    """
    totals = told["totals"]
    jobs = f"{told['jobs']} job{'' if told['jobs'] == 1 else 's'}"
    saved = "what they saved is not known" if totals["saved_joules"] is None else _gain(totals)
    parts = (told["uncounted"], "not counted yet"), (told.get("outdated"), "not up to date yet")  # an older service
    missing = "".join(f" {n} job{' is' if n == 1 else 's are'} {what}." for n, what in parts if n)
    return f"{jobs} used {kwh(totals['joules'])} and {saved}.{missing}"


def _gain(totals: Json) -> str:
    saved, error = totals["saved_joules"], totals["saved_joules_error"]
    if not is_seen(saved, error):
        return f"no difference is seen ({digits(saved / JOULES_PER_KWH)} ± {kwh(error)})"
    return f"{'saved' if saved > 0 else 'lost'} {digits(abs(saved) / JOULES_PER_KWH)} ± {kwh(error)}"


def kwh(joules: float | None) -> str:
    """Energy of a fleet.

    >>> kwh(3.6e6), kwh(None)
    ('1.00 kWh', '-')
    """
    return "-" if joules is None else f"{digits(joules / JOULES_PER_KWH)} kWh"


def tables(told: Json) -> list[Table]:
    """The tables of the report, without those that have no rows."""
    sums = [
        ("By week", "week", told["weeks"]),
        ("By owner", "owner", told["owners"]),
        ("By GPU", "gpu_model", told["gpus"]),
    ]
    found: list[Table] = [
        (name, [key.replace("gpu_model", "GPU"), *HEADINGS], [[row[key] or "-", *_cells(row, told)] for row in rows])
        for name, key, rows in sums
    ]
    for name, rows in (("Jobs that lose", told["losing"]), ("Jobs that fail", told["failing"])):
        found.append(
            (name, ["job", "owner", "why"], [[row["job"], row["owner"] or "-", row["sentence"]] for row in rows])
        )
    idle = [
        [row["job"], row["owner"] or "-", (row["last_run_at"] or "never")[:16].replace("T", " ")]
        for row in told["idle"]
    ]
    found.append(("Jobs that did not run", ["job", "owner", "last run (UTC)"], idle))
    return [one for one in found if one[2]]


def _cells(row: Json, told: Json) -> list[str]:
    saved = (
        "-"
        if row["saved_joules"] is None
        else f"{digits(row['saved_joules'] / JOULES_PER_KWH)} ± {kwh(row['saved_joules_error'])}"
    )
    currency = told["currency"]
    return [
        kwh(row["joules"]),
        saved,
        _or(row["money"], None, lambda amount, error: money(amount, currency, error)),
        _or(row["saved_money"], row.get("saved_money_error"), lambda amount, error: money(amount, currency, error)),
        _or(row["gco2e"], None, grams),
        _or(row["saved_gco2e"], row.get("saved_gco2e_error"), grams),
        str(row["recurrences"]),
        str(row["failed"]),
    ]


def _or(value: float | None, error: float | None, shown: Callable[[float, float | None], str]) -> str:
    return "-" if value is None else shown(value, error)


def html(told: Json) -> str:
    """The report as one page that loads nothing."""
    parts = [f"<h1>{escape(title(told))}</h1>", f"<p>{escape(told['sentence'])}</p>"]
    for name, headings, rows in tables(told):
        head = "".join(f"<th>{escape(one)}</th>" for one in headings)
        body = "".join(f"<tr>{''.join(f'<td>{escape(one)}</td>' for one in row)}</tr>" for row in rows)
        parts.append(f"<h2>{escape(name)}</h2><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    parts.append(
        f"<p><small>As of {escape(told['as_of'][:16].replace('T', ' '))} UTC. ± is one standard error.</small></p>"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title(told))}</title>'
        f"<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
