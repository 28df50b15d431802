"""Carbon intensity from an online source. Nothing is asked unless the user gives a URL.

The source answers GET with JSON in the form of Electricity Maps: `{"carbonIntensity": 312, "datetime": "..."}` for one
hour, or `{"history": [...]}` with one such object an hour. The user gives the whole URL and, if needed, a token, which
is sent in the header `auth-token`. What is not answered in time is unknown, and so is what cannot be true.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from zeus.deadline import answer_within
from zeus.tariff.rates import SECONDS_PER_HOUR

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
FRESH_SECONDS = 300.0  # an answer is not asked for again within this time, unless an hour has passed
RETRY_SECONDS = 60.0  # after a failure
OLDEST_HOURS = 48  # sources tell about the last day; earlier hours are not asked for
MOST_BYTES = 1_000_000  # a history of a day has about 10,000
MOST_GCO2E = 5_000.0  # per kWh; the dirtiest power stations are below 2,000


class _Unusable(Exception):
    """The source answered, but not with a carbon intensity."""


class OnlineRate:
    """Carbon intensity in gCO2e per kWh. Answers are kept for as long as the process runs.

    Args:
        url: Where to ask.
        token: Sent in the header `auth-token`, if given.
        timeout: Seconds after which no answer is awaited, however it arrives.
        wall: The time, in seconds since 1970.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        timeout: float = TIMEOUT_SECONDS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._url, self._token, self._timeout, self._wall = url, token, timeout, wall
        self._known: dict[int, float] = {}
        self._due = -math.inf  # not asked again before
        self._lock = threading.Lock()

    def at(self, hour: int, *, wait: bool = True) -> float | None:
        """The intensity in this hour. Asks the source if it is not known yet, for at most `timeout` seconds."""
        now = self._wall()
        if wait and hour not in self._known and 0 <= now // SECONDS_PER_HOUR - hour <= OLDEST_HOURS:
            with self._lock:
                if hour not in self._known and now >= self._due:
                    self._ask(now)
        return self._known.get(hour)

    def look(self) -> None:
        """Ask about the present hour in the background, if it is not known: some sources tell only about that one."""
        now = self._wall()
        hour = int(now // SECONDS_PER_HOUR)
        if hour not in self._known and now >= self._due and not self._lock.locked():
            threading.Thread(target=self.at, args=(hour,), name="zeus-carbon", daemon=True).start()

    def _ask(self, now: float) -> None:
        next_hour = (now // SECONDS_PER_HOUR + 1) * SECONDS_PER_HOUR
        try:
            name = urlsplit(self._url).netloc
            found = read_answer(json.loads(answer_within(self._timeout, name, name, self._fetch)), now)
            if not found:
                raise _Unusable(f"no carbonIntensity from 0 to {MOST_GCO2E:g} is in the answer")
        except Exception as failed:  # whatever the source answers, the training goes on
            self._due = self._wall() + RETRY_SECONDS
            log.warning(
                "the carbon intensity is unknown: %s did not answer (%s). Zeus goes on, and asks again later.",
                urlsplit(self._url).netloc.rpartition("@")[2],
                _reason(failed),
            )
            return
        self._known |= found
        self._due = min(now + FRESH_SECONDS, next_hour)

    def _fetch(self) -> bytes:
        """What the source answers. `answer_within` sets the deadline; a source that drips ends at the byte cap."""
        import httpx

        headers = {"accept-encoding": "identity"} | ({"auth-token": self._token} if self._token else {})
        body = b""
        with httpx.stream("GET", self._url, headers=headers, timeout=self._timeout) as answer:
            answer.raise_for_status()
            for piece in answer.iter_raw():
                body += piece
                if len(body) > MOST_BYTES:
                    raise _Unusable(f"the answer has more than {MOST_BYTES} bytes")
        return body


def read_answer(answer: Any, now: float) -> dict[int, float]:
    """The intensities in an answer, by hour. What is not a number from 0 to MOST_GCO2E is left out.

    >>> read_answer({"carbonIntensity": 312, "datetime": "2026-11-15T17:00:00.000Z"}, 0.0)
    {498545: 312.0}
    >>> read_answer({"carbonIntensity": None}, 0.0)
    {}
    """
    rows = answer.get("history", [answer]) if isinstance(answer, dict) else []
    found = {}
    for row in rows:
        value = row.get("carbonIntensity") if isinstance(row, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_GCO2E:
            continue
        stamp = row.get("datetime")
        seconds = now if stamp is None else datetime.fromisoformat(stamp).timestamp()
        found[int(seconds // SECONDS_PER_HOUR)] = float(value)
    return found


def _reason(failed: Exception) -> str:
    """Why it failed, without the URL, which may hold a token."""
    if isinstance(failed, _Unusable):
        return str(failed)
    status = getattr(getattr(failed, "response", None), "status_code", None)
    return f"status {status}" if status is not None else type(failed).__name__


@cache
def online_rate(url: str, token: str) -> OnlineRate:
    """The source at this URL, one for the whole process, so that each hour is asked for once."""
    return OnlineRate(url, token)
