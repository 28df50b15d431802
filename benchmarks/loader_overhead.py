"""Measures what ZeusDataLoader adds to a training step, compared with a plain DataLoader in the same run.

    python benchmarks/loader_overhead.py            1 ms steps on the CPU; with a GPU, also a ResNet-50 step

Both loaders take turns in short rounds. The fastest round of each is compared, as other load on the machine can only
make a round slower.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from zeus import ZeusDataLoader

os.environ.setdefault("ZEUS_QUIET", "1")


def seconds_per_step(loader: Iterable[Any], step: Callable[[], None]) -> float:
    begin, count = time.perf_counter(), 0
    for _ in loader:
        step()
        count += 1
    return (time.perf_counter() - begin) / count


def compare(step: Callable[[], None], steps: int, rounds: int) -> dict[str, float]:
    data = TensorDataset(torch.zeros(steps, 1))
    plain = DataLoader(data, batch_size=1)
    zeus = ZeusDataLoader(data, 1, rounds)
    plains, ours = [], []
    seconds_per_step(plain, step)
    for _ in zeus.epochs():
        plains.append(seconds_per_step(plain, step))
        ours.append(seconds_per_step(zeus, step))
    a, b = min(plains), min(ours)
    return {
        "plain_ms": 1e3 * a,
        "zeus_ms": 1e3 * b,
        "ratio": b / a,
        "added_us": 1e6 * (b - a),
        "median_ratio": statistics.median(ours) / statistics.median(plains),
    }


def one_millisecond() -> None:
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass


def resnet_step() -> Callable[[], None]:
    from torchvision.models import resnet50

    model = resnet50().cuda().to(memory_format=torch.channels_last)
    best = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (128,), device="cuda")

    def step() -> None:
        best.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        best.step()
        torch.cuda.synchronize()

    for _ in range(10):
        step()
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    args = parser.parse_args()
    results = {"1 ms step": compare(one_millisecond, 200, args.rounds)}
    if torch.cuda.is_available():
        results["ResNet-50 step"] = compare(resnet_step(), 40, args.rounds)
    for name, r in results.items():
        print(
            f"{name}: plain {r['plain_ms']:.4f} ms, Zeus {r['zeus_ms']:.4f} ms, "
            f"overhead {100 * (r['ratio'] - 1):+.3f} % ({r['added_us']:+.1f} us per step), "
            f"ratio of medians {r['median_ratio']:.4f}"
        )


if __name__ == "__main__":
    main()
