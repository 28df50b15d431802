"""The training script of `zeus demo`: a real model, written as a user of `zeus run` would write it (Listing 1)."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from zeus import ZeusDataLoader
from zeus.env import orders

FEATURES, CLASSES = 32, 10
SAMPLES = 16384
NOISE = 0.1  # of the labels to learn from are wrong


class Batches(Dataset[tuple[Tensor, Tensor]]):
    """Samples that a loader takes a batch at a time, which is quicker than one by one."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        """A batch."""
        return self.inputs[indices], self.labels[indices]


@cache
def data() -> tuple[Batches, Batches]:
    """To learn from and to evaluate on: points in 32 dimensions, labelled by a random network that is never shown."""
    chance = torch.Generator().manual_seed(0)
    teacher = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, CLASSES))
    for weights in teacher.parameters():
        weights.data = torch.randn(weights.shape, generator=chance)

    def draw(count: int, noise: float) -> Batches:
        inputs = torch.randn(count, FEATURES, generator=chance)
        labels = teacher(inputs / math.sqrt(FEATURES)).argmax(1)
        wrong = torch.rand(count, generator=chance) < noise
        return Batches(inputs, torch.where(wrong, torch.randint(CLASSES, (count,), generator=chance), labels))

    with torch.no_grad():
        return draw(SAMPLES, NOISE), draw(2048, 0.0)


def train(batch_size: int, learning_rate: float, seed: int) -> ZeusDataLoader:
    """One run."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), learning_rate)
    train_set, eval_set = data()
    train_loader = ZeusDataLoader(train_set, batch_size, max_epochs=30, shuffle=True, collate_fn=lambda batch: batch)
    eval_loader = ZeusDataLoader(eval_set, 1024, collate_fn=lambda batch: batch)
    for _ in train_loader.epochs():
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        right = 0
        with torch.no_grad():
            for inputs, labels in eval_loader:
                right += int((model(inputs).argmax(1) == labels).sum())
        train_loader.report_metric(right / len(eval_set))
    return train_loader


if __name__ == "__main__":
    told = orders()
    train(told.batch_size or 1024, told.learning_rate or 0.4, told.seed or 0)
