"""A training that prints its epochs and metrics: `python train_lines.py BATCH_SIZE FOLDER`.

It works on the virtual cards of its node. After each step it writes into FOLDER what the counters of these cards have
counted since its first epoch. That is the truth that the store is compared with.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from zeus.device.find import find
from zeus.device.virtual import step

EPOCHS = {32: 7, 64: 5, 128: 8}  # to the target, by batch size
STEPS_OF_64 = 40


def main(size: int, folder: Path) -> None:
    task, start = os.environ.get("SLURM_ARRAY_TASK_ID", "0"), os.environ.get("SLURM_RESTART_COUNT", "0")
    gpus = list(find().values())
    who = {"task": int(task), "start": int(start), "node": os.environ["SLURMD_NODENAME"]}
    print("epoch 1 begins")
    zero, epoch = sum(gpu.energy() for gpu in gpus), 1
    with (folder / f"{os.environ['ZEUS_TRIAL']}.jsonl").open("a") as record:

        def note() -> None:
            used = sum(gpu.energy() for gpu in gpus) - zero
            print(json.dumps({**who, "epoch": epoch, "joules": used}), file=record, flush=True)

        try:
            while True:
                for _ in range(STEPS_OF_64 * 64 // size):
                    while epoch == 3 and (folder / f"hold-{task}").exists():
                        time.sleep(0.05)
                    step(gpus, size)
                    note()
                print(f"accuracy={0.9 * min(1.0, epoch / EPOCHS[size])}")
                if epoch == EPOCHS[size]:
                    break
                epoch += 1
                print(f"epoch {epoch} begins")
        except KeyboardInterrupt:  # how `zeus run` ends it
            note()
            raise


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
