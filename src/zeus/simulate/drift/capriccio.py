"""Capriccio (§6.4): cuts the tweets of Sentiment140 into slices that drift, by moving a window one day at a time.

A slice is `window` tweets, counted from the first tweet of a date. Every date with tweets starts a slice, as long as a
whole window of tweets is left. A date without tweets starts none, as its slice would equal the next one.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date as Date
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from zeus.errors import InputError
from zeus.simulate.traces.csv_tables import Cells, read_table

FULL_SET: Final = 1_600_000  # tweets in Sentiment140
FULL_WINDOW: Final = 500_000  # as in the paper: about a month of tweets
PAPER_FIRST: Final = Date(2009, 5, 1)  # the date of the paper's first slice
COLUMNS: Final = ("target", "ids", "date", "flag", "user", "text")
_DATE = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d\d) (\d\d):(\d\d):(\d\d) [A-Z]{3} (\d{4})")  # Pacific time
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Tweet(NamedTuple):
    """One labelled tweet."""

    when: datetime  # local time, without the time zone
    positive: bool
    text: str


@dataclass(frozen=True, slots=True)
class DataSlice:
    """The data set of one recurrence."""

    date: str  # ISO date of the first tweet
    tweets: Sequence[Tweet]

    @property
    def positive_share(self) -> float:
        return sum(tweet.positive for tweet in self.tweets) / len(self.tweets)


def read_tweets(path: Path | str) -> list[Tweet]:
    """Read a Sentiment140 CSV, in order of time. The header is optional. The encoding is UTF-8 or Latin-1."""
    tweets = [_tweet(cells) for cells in read_table(path, COLUMNS, quoted=True)]
    if not tweets:
        raise InputError(f"{path}: the file holds no tweets. Each line must be {','.join(COLUMNS)}.")
    return sorted(tweets, key=lambda tweet: tweet.when)


def proportional_window(tweets: int) -> int:
    """The window for this many tweets: the same share as 500,000 tweets are of Sentiment140.

    >>> proportional_window(1_600_000), proportional_window(20_000)
    (500000, 6250)
    """
    return max(1, tweets * FULL_WINDOW // FULL_SET)


def slices(tweets: Sequence[Tweet], window: int, first: Date = Date.min) -> Iterator[DataSlice]:
    """Cut tweets, given in order of time, into slices of `window` tweets.

    The first slice begins on the date `first` or later. The paper's 38 slices begin on the dates
    from 1 May (`PAPER_FIRST`) to 7 June.
    """
    if not 1 <= window <= len(tweets):
        raise InputError(f"window {window}: give a number from 1 to {len(tweets)}, the number of tweets.")
    date = None
    last = tweets[len(tweets) - window].when.date()
    if last < first:
        raise InputError(
            f"first date {first}: the last whole window of {window} tweets begins on {last}. Give that date "
            "or an earlier one, or a smaller window."
        )
    for i, tweet in enumerate(tweets[: len(tweets) - window + 1]):
        if tweet.when.date() != date:
            date = tweet.when.date()
            if date >= first:
                yield DataSlice(date.isoformat(), tweets[i : i + window])


def empty_dates(cut: Sequence[DataSlice], first: Date | None = None) -> int:
    """How many dates from the first (default: that of the first slice) to the last slice begin none.

    >>> empty_dates([DataSlice("2009-05-02", []), DataSlice("2009-05-05", [])])
    2
    """
    begin, end = Date.fromisoformat(cut[0].date), Date.fromisoformat(cut[-1].date)
    return (end - (first or begin)).days + 1 - len(cut)


def write(cut: Sequence[DataSlice], folder: Path | str, source: str) -> Path:
    """Write one CSV per slice (`date,positive,text`) and an index, `slices.json`, into a new or empty folder."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder. Nothing was written; give a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for number, one in enumerate(cut):
        name = f"slice_{number:02d}.csv"
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("date", "positive", "text"))
            writer.writerows((t.when.isoformat(), int(t.positive), t.text) for t in one.tweets)
        index.append({"file": name, "date": one.date, "tweets": len(one.tweets), "positive_share": one.positive_share})
    about = folder / "slices.json"
    about.write_text(json.dumps({"source": source, "slices": index}, indent=2) + "\n", encoding="utf-8")
    return about


def _tweet(cells: Cells) -> Tweet:
    target, when = cells["target"], _when(cells["date"])
    if target not in ("0", "4"):
        raise cells.fault(f"target is {target!r}; it must be 0 (negative) or 4 (positive)")
    if when is None:
        raise cells.fault(f"date is {cells['date']!r}; write it as 'Tue Jun 16 18:18:12 PDT 2009'")
    return Tweet(when, target == "4", cells["text"])


def _when(date: str) -> datetime | None:
    found = _DATE.fullmatch(date)
    if found is None or found[1] not in _MONTHS:
        return None
    day, hour, minute, second, year = map(int, found.groups()[1:])
    try:
        return datetime(year, _MONTHS.index(found[1]) + 1, day, hour, minute, second)
    except ValueError:
        return None
