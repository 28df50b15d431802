"""The ends of trials' logs, which travel to the store so that a log can be read from any machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from zeus import settings

MOST_BYTES = 65_536  # of one log


class KeptLog(NamedTuple):
    """The end of a log, and when it was stored."""

    at: str
    text: str


class Logs(Protocol):
    """The logs in a store. They are not facts: exports have none, and old ones are removed."""

    def keep(self, job_id: str, number: int, text: str, *, trial_id: str = "") -> None:
        """Keep the end of a trial's log in place of an earlier one. Logs that are too old are removed.

        Raises NotKnown if there is no such trial, and Forbidden if the job is somebody else's.
        """

    def find(self, job_id: str, number: int) -> KeptLog | None:
        """The end of a trial's log, if one is kept."""

    def times(self, job_id: str, numbers: Iterable[int] | None = None) -> dict[int, str]:
        """When the log of each of these trials was stored. Trials without one are missing. Default: of all trials."""


def last_lines(text: str, most: int = MOST_BYTES) -> str:
    """The last whole lines that fit into so many bytes of UTF-8; part of a line that is longer than that.

    >>> last_lines("one\\ntwo\\nthree\\n", 10), last_lines("abcdef", 3)
    ('two\\nthree\\n', 'def')
    """
    data = text.replace("\0", "").encode(errors="replace")
    if len(data) <= most:
        return data.decode()
    cut = data[len(data) - most :]
    begins_a_line = data[len(data) - most - 1 : len(data) - most] == b"\n"
    first = cut.find(b"\n") + 1
    whole = cut if begins_a_line or not 0 < first < len(cut) else cut[first:]
    return whole.decode(errors="ignore")


def most_bytes() -> int:
    """How much of a log is kept: what `[retention]` says, and never more than travels."""
    return min(MOST_BYTES, settings.log_bytes())
