"""The training of `zeus demo`: a real model on generated data, written like a script for `zeus run` (Listing 1)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from zeus import ZeusDataLoader

FEATURES, CLASSES = 32, 10
SAMPLES, SAMPLES_TO_EVALUATE = 16384, 2048
NOISE = 0.1  # share of training labels that are random, as real labels have errors too


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Inputs and labels. A whole batch is read at once, which is faster than sample by sample."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.labels[indices]


def as_it_is(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Collate function: a batch is already collated."""
    return batch


@cache
def data() -> tuple[Samples, Samples]:
    """The training and the evaluation set. A fixed random network gives the labels."""
    chance = torch.Generator().manual_seed(0)
    teacher = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, CLASSES))
    for weights in teacher.parameters():
        weights.data = torch.randn(weights.shape, generator=chance)

    def draw(count: int, noise: float) -> Samples:
        inputs = torch.randn(count, FEATURES, generator=chance)
        labels = teacher(inputs / math.sqrt(FEATURES)).argmax(1)
        wrong = torch.rand(count, generator=chance) < noise
        return Samples(inputs, torch.where(wrong, torch.randint(CLASSES, (count,), generator=chance), labels))

    with torch.no_grad():
        return draw(SAMPLES, NOISE), draw(SAMPLES_TO_EVALUATE, 0.0)


def train(batch_size: int, learning_rate: float, max_epochs: int, target_accuracy: float, seed: int) -> float | None:
    """Train once and return the chosen power limit, in watts."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), learning_rate)
    train_set, eval_set = data()
    train_loader = ZeusDataLoader(train_set, batch_size, max_epochs, target_accuracy, shuffle=True, collate_fn=as_it_is)
    eval_loader = ZeusDataLoader(eval_set, 1024, collate_fn=as_it_is)
    for _ in train_loader.epochs():
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        right = 0
        with torch.no_grad():
            for inputs, labels in eval_loader:
                right += int((model(inputs).argmax(1) == labels).sum())
        train_loader.report_metric(right / len(eval_set))
    return train_loader.summary.limit
