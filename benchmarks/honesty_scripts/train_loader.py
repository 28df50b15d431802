"""Listing 1 of the paper: ZeusDataLoader under `zeus run`. What its summary tells goes to summary.jsonl."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from toy import TARGET, Toy

from zeus import ZeusDataLoader

size = int(sys.argv[1])
toy = Toy(size)
train_loader = ZeusDataLoader(range(toy.steps * size), size, 99, TARGET, collate_fn=len)
eval_loader = ZeusDataLoader(range(toy.evaluation_steps * size), size, collate_fn=len)
toy.set_up()
for epoch in train_loader.epochs():
    if epoch == 0:
        toy.mark("begin")
    toy.begin_epoch()
    for _ in train_loader:
        toy.work_more()
    for _ in eval_loader:
        pass
    train_loader.report_metric(toy.metric())
with Path("summary.jsonl").open("a") as file:
    file.write(json.dumps(asdict(train_loader.summary), default=str) + "\n")
