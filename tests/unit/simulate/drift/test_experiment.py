"""Data that drift: Capriccio's slices, tables that shift, and a classifier that is really trained."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.published import TRACES
from zeus.errors import InputError
from zeus.simulate import drift, virtual
from zeus.simulate.drift import capriccio, tweet_model
from zeus.simulate.drift.capriccio import Tweet

SAMPLE = TRACES.parent / "sentiment140_sample" / "sentiment140_sample.csv"
needs_sample = [
    pytest.mark.data,
    pytest.mark.skipif(not SAMPLE.exists(), reason=f"{SAMPLE} is not there; set ZEUS_DATA to the folder that holds it"),
]
LINE = '"4","1","Tue Jun 16 18:18:12 PDT 2009","NO_QUERY","me","what a day"\n'

# ---------------------------------------------------------------------- Capriccio

moments = st.lists(st.integers(0, 40 * 24), min_size=1, max_size=60).map(
    lambda hours: [Tweet(datetime(2009, 4, 6) + timedelta(hours=h), True, str(h)) for h in sorted(hours)]
)


@given(moments, st.data())
def test_each_date_with_tweets_begins_one_whole_window(tweets: list[Tweet], data: st.DataObject) -> None:
    window = data.draw(st.integers(1, len(tweets)))
    cut = list(capriccio.slices(tweets, window))
    begins = [i for i in range(len(tweets)) if i == 0 or tweets[i - 1].when.date() != tweets[i].when.date()]
    assert [list(one.tweets) for one in cut] == [tweets[i : i + window] for i in begins if len(tweets) - i >= window]
    assert [one.date for one in cut] == sorted({one.date for one in cut})


@pytest.mark.parametrize("window", [0, 4])
def test_a_window_that_the_tweets_do_not_fill_is_refused(window: int) -> None:
    tweets = [Tweet(datetime(2009, 4, 6), True, "a")] * 3
    with pytest.raises(InputError, match="from 1 to 3, the number of tweets"):
        list(capriccio.slices(tweets, window))


@given(moments, st.integers(0, 40))
def test_slices_begin_on_the_first_date_or_later(tweets: list[Tweet], day: int) -> None:
    first = (datetime(2009, 4, 6) + timedelta(days=day)).date()
    every = list(capriccio.slices(tweets, 1))
    later = [one for one in every if one.date >= first.isoformat()]
    if later:
        assert [one.date for one in capriccio.slices(tweets, 1, first)] == [one.date for one in later]
        assert capriccio.empty_dates(later, first) >= 0
    else:
        with pytest.raises(InputError, match=f"first date {first}: the last whole window of 1 tweets begins on"):
            list(capriccio.slices(tweets, 1, first))


def test_tweets_are_read_by_time_in_both_encodings(tmp_path: Path) -> None:
    path = tmp_path / "tweets.csv"
    early = '"0","2","Mon Apr 06 23:11:14 PDT 2009","NO_QUERY","me","caf\u00e9, ""no"""\n'
    for encoding, header in (("latin-1", ""), ("utf-8", "target,ids,date,flag,user,text\n")):
        path.write_bytes((header + LINE + early).encode(encoding))
        assert capriccio.read_tweets(path) == [
            Tweet(datetime(2009, 4, 6, 23, 11, 14), False, 'caf\u00e9, "no"'),
            Tweet(datetime(2009, 6, 16, 18, 18, 12), True, "what a day"),
        ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1,2,3\n", "line 2: 3 cells; needs 6"),
        (LINE.replace('"4"', '"2"'), r"line 2: target is '2'; it must be 0 \(negative\) or 4 \(positive\)"),
        (LINE.replace("Jun 16", "Jun 31"), "line 2: date is 'Tue Jun 31"),
        (LINE.replace("PDT ", ""), "line 2: date is 'Tue Jun 16 18:18:12 2009'"),
        ('"4","1","' + 200_000 * "a", "line 2: not a valid CSV"),  # the quote is never closed
    ],
)
def test_a_fault_in_the_tweets_is_named_with_its_line(tmp_path: Path, line: str, fault: str) -> None:
    path = tmp_path / "tweets.csv"
    path.write_text(LINE + line)
    with pytest.raises(InputError, match=fault):
        capriccio.read_tweets(path)


def test_slices_are_written_to_a_new_folder_only(tmp_path: Path) -> None:
    tweets = [Tweet(datetime(2009, 4, day), day > 7, f'day "{day}"') for day in (6, 7, 8)]
    cut = list(capriccio.slices(tweets, 2))
    index = json.loads(capriccio.write(cut, tmp_path / "out", "made up").read_text())
    assert [(one["file"], one["date"], one["tweets"], one["positive_share"]) for one in index["slices"]] == [
        ("slice_00.csv", "2009-04-06", 2, 0.0),
        ("slice_01.csv", "2009-04-07", 2, 0.5),
    ]
    assert (tmp_path / "out" / "slice_01.csv").read_text().splitlines()[-1] == '2009-04-08T00:00:00,1,"day ""8"""'
    before = sorted((tmp_path / "out").iterdir())
    with pytest.raises(InputError, match="Nothing was written"):
        capriccio.write(cut[:1], tmp_path / "out", "again")
    assert sorted((tmp_path / "out").iterdir()) == before


# ---------------------------------------------------------------------- tables that shift


@given(st.sampled_from(["BERT-SA", "NeuMF"]), st.data())
def test_a_made_up_table_is_a_valley_around_its_best_size(name: str, data: st.DataObject) -> None:
    base = virtual.load("v100", [name])[name]
    best = data.draw(st.sampled_from(base.sizes))
    table = drift.valley(base, best)
    assert table.profiles == base.profiles
    assert all(table.always_converges(size) for size in table.sizes)
    means = {size: table.epochs_charged(size) for size in table.sizes}
    away = [abs(math.log2(size / best)) for size in table.sizes]
    far = [size for size, k in zip(table.sizes, away, strict=True) if k >= 2]
    assert all(means[size] > 1.5 * means[best] for size in far)


def test_a_size_that_the_workload_has_not_is_refused() -> None:
    with pytest.raises(InputError, match="7 is not a batch size of BERT-SA"):
        drift.valley(virtual.load("v100", ["BERT-SA"])["BERT-SA"], 7)


def test_a_window_follows_a_shift_that_a_long_memory_misses() -> None:
    base = virtual.load("v100", ["BERT-SA"])["BERT-SA"]
    series = drift.shifts(base, 60, (128, 16))

    def after(window: int) -> float:
        runs = [drift.run(series, window=window, seed=seed) for seed in range(4)]
        assert all(row.slice == n for rows in runs for n, row in enumerate(rows, start=1))
        return fmean(row.cost for rows in runs for row in rows[30:])

    assert after(window=10) < 0.6 * after(window=0)


def test_a_rise_of_all_costs_does_not_stop_every_run_for_ever() -> None:
    base = virtual.load("v100", ["BERT-SA"])["BERT-SA"]
    cheap, dear = (drift.valley(base, 32, least=least) for least in (2, 20))
    dear = replace(dear, max_epochs=200)
    series = [("cheap", replace(cheap, max_epochs=200))] * 20 + [("dear", dear)] * 30
    rows = drift.run(series, window=10)
    assert all(row.converged for row in rows)
    assert all(row.tries < 5 for row in rows[-5:])  # once the window holds dear runs alone


def test_no_slices_are_refused() -> None:
    with pytest.raises(InputError, match="no slices"):
        drift.run([])


# ---------------------------------------------------------------------- the classifier


def made_up(days: int = 6, a_day: int = 60) -> list[Tweet]:
    """Happy and sad words; the later, the fewer are happy."""
    chance = np.random.default_rng(0)
    tweets = []
    for i in range(days * a_day):
        happy = bool(chance.random() < 0.7 - 0.05 * (i // a_day))
        words = [*chance.choice(["sun", "great", "joy"] if happy else ["rain", "awful", "pain"], 2), f"w{i}"]
        tweets.append(Tweet(datetime(2009, 4, 6) + timedelta(hours=24 * i / a_day), happy, " ".join(words)))
    return tweets


def trained(tweets: list[Tweet], labels: list[bool]) -> int | None:
    texts = [tweet.text for tweet in tweets]
    return tweet_model.epochs_to_target(
        tweet_model.features(texts),
        np.array(labels, dtype=float),
        tweet_model.held_back(texts),
        batch_size=16,
        learning_rate=0.5,
        target=0.95,
        max_epochs=8,
        seed=(0, 1),
    )


def test_what_can_be_learnt_is_learnt_and_what_cannot_is_not() -> None:
    tweets = made_up()
    labels = [tweet.positive for tweet in tweets]
    noise = [bool(bit) for bit in np.random.default_rng(1).random(len(labels)) < 0.5]
    assert trained(tweets, labels) is not None
    assert trained(tweets, noise) is None
    assert trained(tweets, labels) == trained(tweets, labels)


def test_texts_and_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="360 texts, 3 labels"):
        trained(made_up(), [True] * 3)


def test_a_text_is_held_back_wherever_it_turns_up() -> None:
    texts = [tweet.text for tweet in made_up()]
    held = tweet_model.held_back(texts)
    assert (tweet_model.held_back(texts[17:]) == held[17:]).all()
    assert 0.1 < held.mean() < 0.3


def test_a_policy_trains_on_slice_after_slice_the_same_for_a_seed() -> None:
    cut = list(capriccio.slices(made_up(), 180))
    one, again, other = (drift.run(drift.tweets(cut, seed=seed, target=0.9), seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert [row.label for row in one] == [each.date for each in cut]
    assert all(row.converged and row.batch_size in drift.SIZES for row in (*one, *other))
    first = drift.tweets(cut, target=0.9)[0][1]
    assert one[0].batch_size == drift.DEFAULT
    needed = {run for run in first.runs[drift.DEFAULT] if run is not None}
    best = first.best_epoch(drift.DEFAULT, 0.5)
    profiling = first.profiling_epoch(drift.DEFAULT)
    assert any(one[0].energy == pytest.approx(profiling.joules + (n - 1) * best.joules) for n in needed)


class TestTheSample:
    pytestmark = needs_sample

    def test_it_is_cut_into_36_slices_of_6250_tweets(self) -> None:
        tweets = capriccio.read_tweets(SAMPLE)
        cut = list(capriccio.slices(tweets, capriccio.proportional_window(len(tweets))))
        assert (len(cut), {len(one.tweets) for one in cut}) == (36, {6250})
        assert (cut[0].date, cut[-1].date) == ("2009-04-06", "2009-06-07")
        assert cut[0].positive_share > 0.6
        assert cut[-1].positive_share < 0.35

    def test_from_the_papers_first_date_there_are_29_slices_and_9_dates_without_tweets(self) -> None:
        tweets = capriccio.read_tweets(SAMPLE)
        cut = list(capriccio.slices(tweets, capriccio.proportional_window(len(tweets)), capriccio.PAPER_FIRST))
        assert (cut[0].date, cut[-1].date, len(cut)) == ("2009-05-01", "2009-06-07", 29)
        assert capriccio.empty_dates(cut, capriccio.PAPER_FIRST) == 38 - 29

    def test_the_policy_leaves_the_default_for_a_smaller_size_and_pays_less(self) -> None:
        tweets = capriccio.read_tweets(SAMPLE)
        cut = list(capriccio.slices(tweets, capriccio.proportional_window(len(tweets))))[:12]
        rows = drift.run(drift.tweets(cut))
        assert rows[0].batch_size == drift.DEFAULT
        assert rows[-1].batch_size < drift.DEFAULT
        assert rows[-1].cost < 0.5 * rows[0].cost
