"""Trains a small causal language model with the Hugging Face Trainer, with one global batch split in different ways.

    ZEUS_READ_ONLY=1 python benchmarks/h200/accumulation.py --data DIR [--steps 120] [--rounds 3] [--parts 1 2 4 8]

The global batch is 64 sequences of 256 bytes, in 1, 2, 4 or 8 parts whose gradients are accumulated. Runs with and
without the callbacks of Zeus take turns, and each round has another order and another seed. The window around
`train()` is the same for both, so its difference is what the callbacks add. Printed for each way: the loss along the
training, the energy of a sequence, and the overhead of the callbacks.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
from zeus.training.huggingface import EnergyCallback

GLOBAL_BATCH, LENGTH, LOGGED_EVERY = 64, 256, 10


class Text(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """AG News as pieces of bytes."""

    def __init__(self, folder: Path) -> None:
        lines = (folder / "sst2_agnews" / "agnews" / "dev.tsv").read_text(encoding="utf-8").splitlines()
        joined = "\n".join(line.rpartition("\t")[0] for line in lines).encode()
        whole = torch.frombuffer(bytearray(joined), dtype=torch.uint8).long()
        self._pieces = whole[: len(whole) // LENGTH * LENGTH].view(-1, LENGTH)

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._pieces[index], "labels": self._pieces[index]}


def train(data: Text, parts: int, seed: int, steps: int, zeus: bool, monitor: ZeusMonitor) -> dict[str, Any]:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=256,
        n_positions=LENGTH,
        n_embd=512,
        n_layer=8,
        n_head=8,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=GLOBAL_BATCH // parts,
            gradient_accumulation_steps=parts,
            max_steps=steps,
            learning_rate=5e-4,
            warmup_steps=10,
            bf16=True,
            logging_steps=LOGGED_EVERY,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=seed,
        )
        callbacks = [HFGlobalPowerLimitOptimizer(monitor), EnergyCallback(monitor)] if zeus else []
        trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=callbacks)
        with monitor.window("train") as window:
            trainer.train()
    logs = trainer.state.log_history
    return {
        "joules": window.joules,
        "error": window.error,
        "seconds": window.seconds,
        "losses": [one["loss"] for one in logs if "loss" in one],
        "logged": max((one.get("zeus/joules", 0.0) for one in logs), default=0.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with sst2_agnews")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", type=int, nargs="+", default=(1, 2, 4, 8))
    options = parser.parse_args()
    data, monitor = Text(options.data), ZeusMonitor()
    for parts in options.parts:
        train(data, parts, 99, 10, True, monitor)  # warms up, and is not counted
    runs: dict[tuple[int, bool], list[dict[str, Any]]] = defaultdict(list)
    chance = random.Random(0)
    for seed in range(options.rounds):
        order = [(parts, zeus) for parts in options.parts for zeus in (False, True)]
        chance.shuffle(order)
        for parts, zeus in order:
            run = train(data, parts, seed, options.steps, zeus, monitor)
            runs[parts, zeus].append(run)
            print(
                f"round {seed}, {parts} parts, {'with' if zeus else 'without'} callbacks: {run['joules']:.0f} ± "
                f"{run['error']:.0f} J, {run['seconds']:.2f} s, last loss {run['losses'][-1]:.4f}, "
                f"logged {run['logged']:.0f} J",
                flush=True,
            )
    sequences = options.steps * GLOBAL_BATCH
    print("\n| parts | J per sequence | time (s) | callbacks: energy | callbacks: time | last loss |")
    print("|---:|---:|---:|---:|---:|---:|")
    for parts in options.parts:
        bare, zeus = runs[parts, False], runs[parts, True]
        cells = [_spread([one["joules"] / sequences for one in bare], 4), _spread([one["seconds"] for one in bare], 2)]
        for what in ("joules", "seconds"):
            added = [100 * (one[what] / other[what] - 1) for one, other in zip(zeus, bare, strict=True)]
            cells.append(f"{_spread(added, 2)} %")
        cells.append(_spread([one["losses"][-1] for one in bare + zeus], 4))
        print(f"| {parts} | " + " | ".join(cells) + " |")
    print(f"\nLoss every {LOGGED_EVERY} steps, mean over all runs of a split:")
    for parts in options.parts:
        curves = [one["losses"] for one in runs[parts, False] + runs[parts, True]]
        print(f"  {parts}: " + " ".join(f"{fmean(values):.3f}" for values in zip(*curves, strict=True)))
    first, *others = options.parts
    worst = max(
        (
            abs(a - b)
            for parts in others
            for seed in range(options.rounds)
            for a, b in zip(runs[first, False][seed]["losses"], runs[parts, False][seed]["losses"], strict=True)
        ),
        default=0.0,
    )
    seeds = [runs[first, False][seed]["losses"] for seed in range(options.rounds)]
    between = max(max(values) - min(values) for values in zip(*seeds, strict=True))
    print(f"Largest difference of the loss to the first split with the same seed: {worst:.4f}.")
    print(f"Between seeds: {between:.4f}.")


def _spread(values: list[float], digits: int) -> str:
    return f"{fmean(values):.{digits}f} ± {stdev(values) if len(values) > 1 else 0.0:.{digits}f}"


if __name__ == "__main__":
    main()
