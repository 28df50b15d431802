"""A training on several nodes under torchrun, with ZeusDataLoader: `train_ranks.py FOLDER`.

Each rank writes into FOLDER, for each epoch, the power limits of all cards of its node, and what the counter of its own
card has counted since the first epoch.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from zeus import ZeusDataLoader
from zeus.device.find import machine

TARGET_EPOCHS, STEPS = 6, 20


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = int(os.environ["ZEUS_BATCH_SIZE"])
    data = torch.utils.data.TensorDataset(torch.zeros(size * STEPS // dist.get_world_size(), 1))
    loader = ZeusDataLoader(data, size, max_epochs=TARGET_EPOCHS, target_metric=0.9)
    cards = machine()
    own = cards[int(os.environ["LOCAL_RANK"])]
    zero, used, limits = -1.0, 0.0, []
    for epoch in loader.epochs():
        zero = own.energy() if epoch == 0 else zero
        for _ in loader:
            pass
        used = own.energy() - zero
        limits.append([gpu.limit() for gpu in cards])
        loader.report_metric(0.9 * (epoch + 1) / TARGET_EPOCHS)
    told = {
        "node": os.environ["SLURMD_NODENAME"],
        "rank": dist.get_rank(),
        "joules": used,
        "limits": limits,
        "best": loader.summary.limit,
        "charged": loader.summary.joules,
    }
    (folder / f"rank-{os.environ['ZEUS_TRIAL']}-{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
