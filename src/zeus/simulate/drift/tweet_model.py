"""A small text classifier that is really trained: logistic regression on hashed words and word pairs, by plain SGD.

It replaces the paper's BERT, so that one CPU core can find out how many epochs a slice needs (§6.4). As with BERT, a
small batch needs fewer epochs, a large batch needs fewer steps, and both change with the data.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from zeus.errors import InputError

BUCKETS: Final = 1 << 15
WIDTH: Final = 40  # words and pairs kept per tweet; a tweet has at most 140 characters
VALIDATED: Final = 5  # one text in five is used for validation

_WORD = re.compile(r"[a-z0-9']+|[:;=][-']?[()dp]|[!?]")
_NOISE = re.compile(r"@\w+|https?://\S+")


def features(texts: Iterable[str]) -> npt.NDArray[np.int32]:
    """One row per text: its hash buckets, padded with BUCKETS, whose weight is always 0."""
    rows = [_buckets(text) for text in texts]
    table = np.full((len(rows), WIDTH), BUCKETS, dtype=np.int32)
    for row, buckets in zip(table, rows, strict=True):
        row[: len(buckets)] = buckets
    return table


def held_back(texts: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which texts are used for validation: one in five. A text has the same role in every slice."""
    return np.array([zlib.crc32(text.encode()) % VALIDATED == 0 for text in texts])


def epochs_to_target(
    table: npt.NDArray[np.int32],
    labels: npt.NDArray[np.float64],
    held: npt.NDArray[np.bool_],
    *,
    batch_size: int,
    learning_rate: float,
    target: float,
    max_epochs: int,
    seed: Sequence[int],
) -> int | None:
    """The first epoch after which the validation accuracy meets the target. None if it never does."""
    if not len(table) == len(labels) == len(held) or held.all() or not held.any():
        raise InputError(
            f"{len(table)} texts, {len(labels)} labels, {held.sum()} of {len(held)} for validation. The counts "
            "must be equal, and both training and validation need at least one text."
        )
    kept, chance, weights = np.flatnonzero(~held), np.random.default_rng((*seed, batch_size)), np.zeros(BUCKETS + 1)
    for epoch in range(1, max_epochs + 1):
        shuffled = chance.permutation(kept)
        for begin in range(0, len(shuffled), batch_size):
            _step(weights, table, labels, shuffled[begin : begin + batch_size], learning_rate)
        right = (weights[table[held]].sum(axis=1) > 0) == (labels[held] > 0.5)
        if right.mean() >= target:
            return epoch
    return None


def _step(
    weights: npt.NDArray[np.float64],
    table: npt.NDArray[np.int32],
    labels: npt.NDArray[np.float64],
    batch: npt.NDArray[np.int64],
    learning_rate: float,
) -> None:
    buckets = table[batch]
    scores = np.clip(weights[buckets].sum(axis=1), -500, 500)
    slopes = (1 / (1 + np.exp(-scores)) - labels[batch]) / len(batch)
    weights -= learning_rate * np.bincount(buckets.ravel(), np.repeat(slopes, WIDTH), minlength=len(weights))
    weights[BUCKETS] = 0.0


def _buckets(text: str) -> list[int]:
    words = _WORD.findall(_NOISE.sub("", text.lower()))
    pairs = (f"{a} {b}" for a, b in pairwise(words))
    return sorted({zlib.crc32(term.encode()) % BUCKETS for term in (*words, *pairs)})[:WIDTH]
