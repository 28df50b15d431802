"""An unmodified training script, which knows nothing of Zeus: a ResNet tells noisy, shifted patterns apart.

The twenty patterns are the same each time. Their images are drawn anew in each epoch, and some are hard to see. Without
a GPU the network is narrow, so that the script can be tried.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--scale", type=float, default=1.0, help="multiplies the images of an epoch")
options = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
on_gpu = device.type == "cuda"
KINDS, SIDE, PATCH, NOISE, FAINTEST, AT_ONCE = 20, 32, 4, 2.5, 0.1, 1000


class Block(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first, self.second = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.past: nn.Module = nn.Identity()
        if stride > 1 or before != width:
            self.past = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.second(self.two(relu(self.first(self.one(x))))) + self.past(x))


def resnet18(width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(4):
        for stride in (1 if stage == 0 else 2, 1):
            layers.append(Block(before, width << stage, stride))
            before = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, KINDS))


def draw(count: int) -> tuple[Tensor, Tensor]:
    """Images of the patterns, each moved around the edges, faint or clear, under noise."""
    kinds = torch.randint(KINDS, (count,), device=device)
    across = torch.arange(SIDE, device=device)
    down, right = (torch.randint(SIDE, (count, 1), device=device).add(across) % SIDE for _ in range(2))
    moved = patterns[kinds[:, None, None], down[:, :, None], right[:, None, :]]
    strength = FAINTEST + (1 - FAINTEST) * torch.rand(count, 1, 1, 1, device=device)
    return (strength * moved).add_(NOISE * torch.randn_like(moved)).permute(0, 3, 1, 2), kinds


coarse = torch.randn(KINDS, SIDE // PATCH, SIDE // PATCH, 3, generator=torch.Generator().manual_seed(0)).to(device)
patterns = coarse.repeat_interleave(PATCH, 1).repeat_interleave(PATCH, 2)
torch.manual_seed(options.seed)
steps = max(1, round(40_000 * options.scale / options.batch_size))
test_x, test_y = draw(max(200, round(10_000 * min(1.0, options.scale))))
model = resnet18(64 if on_gpu else 8).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)

began = time.perf_counter()
for epoch in range(1, options.epochs + 1):
    print(f"epoch {epoch}/{options.epochs}", flush=True)
    model.train()
    for _ in range(steps):
        images, kinds = draw(options.batch_size)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = cross_entropy(model(images), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
        parts = zip(test_x.split(AT_ONCE), test_y.split(AT_ONCE), strict=True)
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in parts)
    print(f"accuracy={right / len(test_x):.4f} after {time.perf_counter() - began:.2f} s", flush=True)
