"""Trains four workloads to a fixed target on a real GPU, and writes what each epoch used and reached.

    ZEUS_READ_ONLY=1 python benchmarks/h200/train.py --data DIR --out epochs.csv [--tasks images,text] [--minutes 8]

Runs that are in the file already are not made again, so the work can be done bit by bit. A run ends at its target or
at max_epochs. `tables.py` makes the simulator's traces of the file.

An epoch is one window of `ZeusMonitor`: its training steps and one evaluation. Before the first run of a batch size,
its step is warmed up and captured as a CUDA graph, outside any window, so that small batches are not bound by Python.
The power limit is the one found, and is never changed.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from workloads import TASKS, Data, Task

from zeus.monitor import ZeusMonitor

COLUMNS = ("task", "batch_size", "seed", "epoch", "steps", "joules", "error_joules", "seconds", "metric")
EVALUATED_AT_ONCE = 2048


class Trainer:
    """Trains one network with one batch size. `begin` starts a new run with the weights of a seed."""

    def __init__(self, task: Task, data: Data, size: int, device: torch.device) -> None:
        self.task, self.data, self.size, self.device = task, data, size, device
        torch.manual_seed(0)
        self.model: nn.Module = task.build().to(device)
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=task.learning_rate(size), weight_decay=0.01, fused=on_gpu, capturable=on_gpu
        )
        self.chosen = torch.zeros(size, dtype=torch.long, device=device)
        self.step: Callable[[], None] = self._captured() if on_gpu else self._step

    def begin(self, seed: int) -> None:
        torch.manual_seed(seed)
        fresh = self.task.build().to(self.device)
        with torch.no_grad():
            for mine, new in zip(self.model.parameters(), fresh.parameters(), strict=True):
                mine.copy_(new)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()
        self.chance = torch.Generator(self.device).manual_seed(seed)

    def epoch(self) -> tuple[int, float]:
        """Train one epoch, without a last part of less than a batch, and evaluate. Return the steps and the metric."""
        if self.data.refresh is not None:
            self.data.refresh(self.chance)
        order = torch.randperm(len(self.data.labels), device=self.device, generator=self.chance)
        steps = len(order) // self.size
        for some in order[: steps * self.size].view(steps, self.size):
            self.chosen.copy_(some)
            self.step()
        return steps, self._evaluate()

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._forward_and_back()

    def _forward_and_back(self) -> None:
        with self._autocast():
            scores = self.model(self.data.inputs[self.chosen])
        self.task.loss(scores.float(), self.data.labels[self.chosen]).backward()
        self.optimizer.step()

    def _captured(self) -> Callable[[], None]:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._forward_and_back()
        return graph.replay

    @torch.no_grad()
    def _evaluate(self) -> float:
        with self._autocast():
            scores = [self.model(x).float() for x in self.data.test_inputs.split(EVALUATED_AT_ONCE)]
        if scores[0].dim() > 2:  # bytes: the mean over parts, as all scores together would be large
            labels = self.data.test_labels.split(EVALUATED_AT_ONCE)
            parts = [self.task.metric(s, y) * len(y) for s, y in zip(scores, labels, strict=True)]
            return sum(parts) / len(self.data.test_labels)
        return self.task.metric(torch.cat(scores), self.data.test_labels)


def runs(task: Task, seeds: range, sizes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Sizes from the largest down, which are the quickest, and all seeds of each."""
    return ((size, seed) for size in sorted(sizes, reverse=True) for seed in seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar10_jpeg and sst2_agnews")
    parser.add_argument("--out", type=Path, required=True, help="CSV file to add to")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--sizes", help="some batch sizes, separated by commas (default: all of the task)")
    parser.add_argument("--seeds", type=int, default=4, help="seeds FIRST to FIRST+N-1")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--max-epochs", type=int, help="instead of the task's, and past the target, to look at curves")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no run after this time")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    until, device = time.monotonic() + 60 * options.minutes, torch.device(options.device)
    there = set()
    if options.out.exists():
        with options.out.open(newline="") as file:
            there = {(row["task"], int(row["batch_size"]), int(row["seed"])) for row in csv.DictReader(file)}
    monitor = ZeusMonitor(gpu_indices=[0])
    with options.out.open("a", newline="") as file:
        writer = csv.writer(file)
        if not there:
            writer.writerow(COLUMNS)
        for name in options.tasks.split(","):
            task = TASKS[name]
            data = task.load(options.data, device)
            sizes = tuple(map(int, options.sizes.split(","))) if options.sizes else task.batch_sizes
            trainer: Trainer | None = None
            for size, seed in runs(task, range(options.first_seed, options.first_seed + options.seeds), sizes):
                if (name, size, seed) in there:
                    continue
                if time.monotonic() > until:
                    print("time is up", flush=True)
                    return
                if trainer is None or trainer.size != size:
                    trainer = Trainer(task, data, size, device)
                    trainer.begin(-1)
                    trainer.epoch()  # warms up the evaluation, and is not kept
                rows = train(trainer, seed, monitor, options.max_epochs)
                writer.writerows((name, size, seed, *row) for row in rows)  # a run is written whole or not at all
                file.flush()
                joules, seconds = sum(row[2] for row in rows), sum(row[4] for row in rows)
                end = "reached" if task.reached(rows[-1][-1]) else "missed"
                print(
                    f"{name} {size} seed {seed}: {end} {rows[-1][-1]:.4f} after {len(rows)} epochs, {joules:.0f} J, "
                    f"{seconds:.1f} s, {joules / seconds:.0f} W, error {sum(r[3] for r in rows) / joules:.1%}",
                    flush=True,
                )
                if options.max_epochs:
                    print("   ", " ".join(f"{row[-1]:.3f}" for row in rows), flush=True)


def train(
    trainer: Trainer, seed: int, monitor: ZeusMonitor, max_epochs: int | None
) -> list[tuple[int, int, float, float, float, float]]:
    """One run, to the target or to max_epochs. Rows without task, size and seed."""
    trainer.begin(seed)
    rows = []
    for epoch in range(1, (max_epochs or trainer.task.max_epochs) + 1):
        with monitor.window("epoch") as window:
            steps, metric = trainer.epoch()
        rows.append((epoch, steps, round(window.joules, 3), round(window.error, 3), round(window.seconds, 6), metric))
        if max_epochs is None and trainer.task.reached(metric):
            break
    return rows


if __name__ == "__main__":
    sys.exit(main())
