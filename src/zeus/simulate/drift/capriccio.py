"""Capriccio (§6.4): Sentiment140's tweets cut into slices that drift, a window of tweets moved on a day at a time.

A slice is the `window` tweets from the first of its date on, and every date with tweets begins one, as long as a whole
window is left. Dates with no tweets begin none: their slice would be the next one's again.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from zeus.errors import InputError

FULL_SET: Final = 1_600_000  # tweets in Sentiment140
FULL_WINDOW: Final = 500_000  # the paper's, about a month of them
COLUMNS: Final = ("target", "ids", "date", "flag", "user", "text")
_DATE = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d\d) (\d\d):(\d\d):(\d\d) [A-Z]{3} (\d{4})")  # Pacific time all
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Tweet(NamedTuple):
    """One labelled tweet."""

    when: datetime  # as stamped, without its time zone
    positive: bool
    text: str


@dataclass(frozen=True, slots=True)
class DataSlice:
    """One recurrence's data set."""

    date: str  # ISO; of its first tweet
    tweets: Sequence[Tweet]

    @property
    def positive_share(self) -> float:
        """How much of it is labelled positive."""
        return sum(tweet.positive for tweet in self.tweets) / len(self.tweets)


def read_tweets(path: Path | str) -> list[Tweet]:
    """A Sentiment140 CSV by time, with or without its header; UTF-8, or Latin-1 as it was published."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    tweets: list[Tweet] = []
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for cells in reader:
            if reader.line_num > 1 or tuple(cells) != COLUMNS:
                tweets.append(_tweet(path, reader.line_num, cells))
    except csv.Error as error:  # such as a quote that is never closed
        raise InputError(f"{path}, line {reader.line_num}: not a CSV ({error}).") from error
    if not tweets:
        raise InputError(f"{path}: no tweets. Lines of {','.join(COLUMNS)} are needed.")
    return sorted(tweets, key=lambda tweet: tweet.when)


def proportional_window(tweets: int) -> int:
    """As large a share of this many tweets as 500,000 are of Sentiment140.

    >>> proportional_window(1_600_000), proportional_window(20_000)
    (500000, 6250)
    """
    return max(1, tweets * FULL_WINDOW // FULL_SET)


def slices(tweets: Sequence[Tweet], window: int) -> Iterator[DataSlice]:
    """All slices of tweets that are in order of time."""
    if not 1 <= window <= len(tweets):
        raise InputError(f"window {window}: give a number of tweets from 1 to the {len(tweets)} that there are.")
    date = None
    for i, tweet in enumerate(tweets[: len(tweets) - window + 1]):
        if tweet.when.date() != date:
            date = tweet.when.date()
            yield DataSlice(date.isoformat(), tweets[i : i + window])


def write(cut: Sequence[DataSlice], folder: Path | str, source: str) -> Path:
    """One CSV a slice (`date,positive,text`) and `slices.json` about them; refuses a folder that holds something."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already and not an empty folder. Give a new one; nothing was written.")
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


def _tweet(path: Path, line: int, cells: list[str]) -> Tweet:
    if len(cells) != len(COLUMNS):
        needed = f"{len(COLUMNS)} are needed ({','.join(COLUMNS)})"
        raise InputError(f"{path}, line {line}: {len(cells)} cells where {needed}.")
    target, _, date, _, _, text = cells
    if target not in ("0", "4"):
        raise InputError(f"{path}, line {line}: target is {target!r}; 0 (negative) or 4 (positive) is needed.")
    when = _when(date)
    if when is None:
        raise InputError(f"{path}, line {line}: date is {date!r}; one like 'Tue Jun 16 18:18:12 PDT 2009' is needed.")
    return Tweet(when, target == "4", text)


def _when(date: str) -> datetime | None:
    found = _DATE.fullmatch(date)
    if found is None or found[1] not in _MONTHS:
        return None
    day, hour, minute, second, year = map(int, found.groups()[1:])
    try:
        return datetime(year, _MONTHS.index(found[1]) + 1, day, hour, minute, second)
    except ValueError:
        return None
