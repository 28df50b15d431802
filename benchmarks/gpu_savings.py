"""Checks the saving that Zeus reports on a real GPU, with an unmodified ResNet-18 job and measured runs of the default.

    ZEUS_READ_ONLY=1 python benchmarks/gpu_savings.py [--recurrences 9] [--folder DIR]

Two jobs take turns on one GPU. The first is what a user has: an unmodified training script, its job file and
`zeus run`. The second gives the truth: the same script with policy "default" and ZEUS_MODE=off in a store of its own.
At the end, the default and the saving that `zeus jobs show` reports for the first job are compared with the mean of the
second. Images are generated (ten classes of noisy patterns), so nothing is downloaded. Each trial has its own seed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

SCRIPT = """
import argparse, torch, torchvision
from torch.nn.functional import cross_entropy

told = argparse.ArgumentParser()
told.add_argument("--batch-size", type=int)
told.add_argument("--epochs", type=int)
told.add_argument("--seed", type=int)
told = told.parse_args()
same = torch.Generator("cuda").manual_seed(0)  # the task is the same each time
patterns = torch.randn(10, 3, 32, 32, device="cuda", generator=same)
torch.manual_seed(told.seed)

def images(count):
    classes = torch.randint(10, (count,), device="cuda")
    shift = torch.randint(0, 32, (count,), device="cuda")
    picture = torch.stack([torch.roll(patterns[c], int(s), dims=-1) for c, s in zip(classes.tolist(), shift.tolist())])
    return picture + 2.0 * torch.randn(count, 3, 32, 32, device="cuda"), classes

train_x, train_y = images(20_000)
test_x, test_y = images(4_000)
model = torchvision.models.resnet18(num_classes=10).cuda()
rate = 0.02 * (told.batch_size / 256) ** 0.5
optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
for epoch in range(1, told.epochs + 1):
    model.train()
    for some in torch.randperm(len(train_x), device="cuda").split(told.batch_size):
        with torch.autocast("cuda", torch.bfloat16):
            loss = cross_entropy(model(train_x[some]), train_y[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(test_x.split(1000), test_y.split(1000)))
    print(f"epoch {epoch} done, accuracy={right / len(test_x):.4f}", flush=True)
"""
JOB = """
name = "resnet18"
command = "{python} train.py --batch-size {{batch_size}} --epochs {{epochs}} --seed {{seed}}"
batch_sizes = [32, 64, 128, 256, 512]
default_batch_size = {default}
target_metric = {target}
max_epochs = 30
policy = "{policy}"
mab_seed = {seed}
[metrics]
regex = 'accuracy=([0-9.]+)'
epoch_regex = 'epoch ([0-9]+) done'
"""


def run(folder: Path, mode: str) -> dict[str, Any]:
    """Run one recurrence of the job in this folder."""
    env = {**os.environ, "ZEUS_STORE": f"sqlite:///{folder}/zeus.db", "ZEUS_MODE": mode, "ZEUS_QUIET": "1"}
    call = [sys.executable, "-m", "zeus.cli", "run", "job.toml", "--json"]
    done = subprocess.run(call, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recurrences", type=int, default=9)
    parser.add_argument("--default", type=int, default=256)
    parser.add_argument("--target", type=float, default=0.965)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zeus-savings-"))
    for seed, (name, policy) in enumerate((("zeus", "structured"), ("default", "default"))):
        here = folder / name
        here.mkdir(parents=True)
        (here / "train.py").write_text(SCRIPT)
        values = {"python": sys.executable, "default": options.default, "target": options.target}
        (here / "job.toml").write_text(JOB.format(policy=policy, seed=seed, **values))
    truth: list[dict[str, Any]] = []
    print("recurrence | trials (size: epochs, J, s) | default run (epochs, J, s)")
    for number in range(1, options.recurrences + 1):
        report = run(folder / "zeus", "optimize")
        truth += run(folder / "default", "off")["recurrences"]
        tries = [
            f"{one['batch_size']}: {one['epochs']}, {one['joules']:.0f} J, {one['seconds']:.1f} s"
            for one in report["recurrences"][0]["tries"]
        ]
        usual = truth[-1]
        print(f"{number} | {' -> '.join(tries)} | {usual['epochs']}, {usual['joules']:.0f} J, {usual['seconds']:.1f} s")
        sys.stdout.flush()
    told, saving = report["default"], report["saving"]
    for name, unit in (("joules", "J"), ("seconds", "s")):
        values = [one[name] for one in truth]
        mean, error = fmean(values), stdev(values) / len(values) ** 0.5
        print(
            f"default in {name}: reported {told[name]:.1f} ± {told[f'{name}_error']:.1f} {unit} ({told['basis']}), "
            f"measured {mean:.1f} ± {error:.1f} {unit} in {len(values)} runs: {told[name] / mean - 1:+.1%}"
        )
    used = sum(one["joules"] for one in _history(folder / "zeus"))
    mean = fmean(one["joules"] for one in truth)
    really = options.recurrences * mean - used
    print(
        f"total saving: reported {saving['joules']:.0f} ± {saving['joules_error']:.0f} J ({saving['share']:+.1%}, "
        f"{saving['basis']}), measured {really:.0f} J ({really / options.recurrences / mean:+.1%})"
    )


def _history(folder: Path) -> list[dict[str, Any]]:
    env = {**os.environ, "ZEUS_STORE": f"sqlite:///{folder}/zeus.db"}
    call = [sys.executable, "-m", "zeus.cli", "jobs", "show", "resnet18", "--json"]
    done = subprocess.run(call, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["history"]
    return found


if __name__ == "__main__":
    main()
