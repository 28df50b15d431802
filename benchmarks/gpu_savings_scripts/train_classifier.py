"""A classifier of tables, trained with ZeusDataLoader under `zeus run`: a wide network learns from a random teacher.

The teacher is the same each time. The rows are drawn anew in each epoch, and some of their labels mean nothing. Without
a GPU the network is narrow, so that the script can be tried.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from zeus import ZeusDataLoader

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=1.5e-4)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rows of an epoch")
options = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
on_gpu = device.type == "cuda"
COLUMNS, HIDDEN, KINDS, GAIN, AT_RANDOM, LAYERS = 8, 32, 10, 2.0, 0.1, 8
BATCH_SIZE, MAX_EPOCHS, TARGET = 128, 60, 0.83  # `zeus run` gives others


class Rows(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """New rows in each batch, drawn on the GPU. `at_random` is the share with a label that means nothing."""

    def __init__(self, count: int, at_random: float) -> None:
        self.count, self.at_random = count, at_random

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        count = len(indices)
        inputs = torch.randn(count, COLUMNS, device=device)
        labels = (torch.sin(inputs @ hidden) @ seen).argmax(1)
        noise = torch.randint(KINDS, (count,), device=device)
        return inputs, torch.where(torch.rand(count, device=device) < self.at_random, noise, labels)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.line = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + gelu(self.line(self.norm(x)))


def as_it_is(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return batch


same = torch.Generator().manual_seed(0)
hidden = (GAIN * torch.randn(COLUMNS, HIDDEN, generator=same) / COLUMNS**0.5).to(device)
seen = torch.randn(HIDDEN, KINDS, generator=same).to(device)
torch.manual_seed(options.seed)
train_set = Rows(max(1024, round(70_000 * options.scale)), AT_RANDOM)
eval_set = Rows(max(1024, round(10_000 * min(1.0, options.scale))), 0.0)
width = 2048 if on_gpu else 128
layers = [Layer(width) for _ in range(LAYERS)]
model = nn.Sequential(nn.Linear(COLUMNS, width), *layers, nn.LayerNorm(width), nn.Linear(width, KINDS)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, fused=on_gpu)
train_loader = ZeusDataLoader(train_set, BATCH_SIZE, MAX_EPOCHS, TARGET, shuffle=True, collate_fn=as_it_is)
eval_loader = ZeusDataLoader(eval_set, 1024, collate_fn=as_it_is)

began = time.perf_counter()
for epoch in train_loader.epochs():
    model.train()
    for inputs, labels in train_loader:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
        for inputs, labels in eval_loader:
            correct += int((model(inputs).argmax(1) == labels).sum())
    accuracy = correct / len(eval_set)
    print(f"epoch {epoch + 1}: accuracy={accuracy:.4f} after {time.perf_counter() - began:.2f} s", flush=True)
    train_loader.report_metric(accuracy)
