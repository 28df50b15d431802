"""A script that knows nothing of Zeus and writes lines: `train_lines.py begin|end|file BATCH_SIZE EPOCHS`.

On a virtual clock it waits (WAIT real seconds) where the watcher has something to read or decide: no virtual time
passes meanwhile, so that what is measured does not hang on how busy the machine is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from toy import Toy

style, toy, epochs = sys.argv[1], Toy(int(sys.argv[2])), int(sys.argv[3])
WAIT = float(os.environ["WAIT"]) if "clock=virtual" in os.environ["ZEUS_GPU"] else 0.0


def say(text: str, wait: bool = True) -> None:
    print(text, flush=True)
    time.sleep(WAIT if wait else 0.0)


def begins(epoch: int) -> None:
    say(f"epoch {epoch} of {epochs}")
    if epoch == 1:
        toy.mark("begin")
    toy.train()
    toy.evaluate()
    say(f"acc={toy.metric()}", wait=False)  # the next line comes at the same moment


def ends(epoch: int) -> None:
    toy.train()
    say(f"epoch {epoch} done", wait=bool(toy.evaluation_steps))
    toy.evaluate()
    say(f"acc={toy.metric()}")


def writes(epoch: int) -> None:
    toy.train()
    toy.evaluate()
    with Path("metrics.jsonl").open("a") as file:
        file.write(json.dumps({"epoch": epoch, "metric": toy.metric(), "samples": toy.samples}) + "\n")
    time.sleep(0.12 + WAIT if WAIT else 0.0)  # the file is looked at every tenth of a second


if style != "begin":
    toy.mark("begin")  # set-up cannot be told from the first epoch
toy.set_up()
if toy.told["counted"] and style != "file":
    print(f"samples={toy.samples}", flush=True)
for number in range(1, epochs + 1):
    {"begin": begins, "end": ends, "file": writes}[style](number)
if style == "begin":
    time.sleep(WAIT)
