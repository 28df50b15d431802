"""The page as one file that opens offline, with its data, its script and plotly inside."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import Any

from zeus.client.policy_states import PolicyStateCache
from zeus.client.report import full, profiles_json, report, unreadable
from zeus.client.report.brief import JobDigest
from zeus.client.report.digests import Counted
from zeus.client.report.fleet import fleet_of
from zeus.errors import InputError, NotKnown
from zeus.service.dashboard.page import MODULES, STYLES, read
from zeus.service.overview import sound, totals
from zeus.store import Store
from zeus.store.api import utc
from zeus.tariff.settings import prices

Json = dict[str, Any]
FLEET_WEEKS = 12


def export(store: Store, job_ids: Iterable[str] | None = None) -> str:
    """The page of these jobs, or of all jobs.

    Raises:
        NotKnown: One of `job_ids` is not in the store.
    """
    states, rows, shown, profiles = PolicyStateCache(), list[Json](), dict[str, Json](), dict[str, list[Json]]()
    digests = dict[str, JobDigest]()
    for name in sorted(store.pulse()) if job_ids is None else job_ids:
        try:
            told, digests[name] = _told(store, name, states)
        except NotKnown:
            raise
        except InputError as wrong:
            rows.append(unreadable(name, wrong))
        else:
            rows.append(told["brief"])
            shown[name], profiles[name] = told["full"], told["profiles"]
    sums = [one.totals.with_running(one.running) for one in digests.values()]
    data = {
        "at": utc(time.time()),
        "summary": {**totals(sums, prices()), "jobs": len(rows)},
        "fleet": fleet_of(Counted({name: one.weeks for name, one in digests.items()}), FLEET_WEEKS, "", prices()),
        "jobs": rows,
        "full": shown,
        "profiles": profiles,
    }
    return embed(data)


def _told(store: Store, name: str, states: PolicyStateCache) -> tuple[Json, JobDigest]:
    """What the page shows of a job, and its digest, which is added to the totals."""
    digests = list[JobDigest]()

    def told() -> Json:
        found = report(store, name, states)
        digests.append(JobDigest.of(found))
        rows = digests[0].shown(prices())
        return {"brief": rows, "full": full(found, prices()), "profiles": profiles_json(store, name)}

    return sound(name, told), digests[0]


def embed(data: dict[str, Any]) -> str:
    """The page with this data inside.

    >>> "<script>alert" in embed({"jobs": [{"job": "<script>alert(1)</script>"}]})
    False
    """
    # Only a `<` could end the script element early, and JSON allows it to be escaped.
    told = json.dumps(data, allow_nan=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    page = read("index.html")
    script, plotly = _script(), read("plotly.min.js")
    icon = read("zeus.svg").replace("#", "%23").replace('"', "'").strip()
    pieces = {
        **{f'<link rel="stylesheet" href="static/{name}">': f"<style>{read(name)}</style>" for name in STYLES},
        '<script src="static/plotly.min.js" defer></script>': "",
        '<script type="module" src="static/app.js"></script>': "",
        "</body>": f"<script>window.ZEUS_DATA = {told};</script>\n<script>{plotly}</script>\n"
        f"<script>{script}</script>\n</body>",
        'href="static/zeus.svg"': f'href="data:image/svg+xml,{icon}"',
        'src="static/zeus.svg"': f'src="data:image/svg+xml,{icon}"',
    }
    for old, new in pieces.items():
        page = page.replace(old, new)
    return page


def _script() -> str:
    """The modules of the page as one script: a file that was opened from a disk may not load modules."""
    text = "\n".join(map(read, MODULES))
    return '"use strict";\n' + re.sub(r"^(import \{[^}]*\} from .*;\n|export )", "", text, flags=re.MULTILINE)
