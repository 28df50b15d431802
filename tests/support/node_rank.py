"""One rank of a training on two nodes, started by torchrun as `node_rank.py FOLDER KIND`.

It trains a small model with DDP or FSDP on virtual cards. It leaves in FOLDER its pid, its finished epochs, what it
printed on stderr, and at the end what it came to see.

Environment:
    SLOW=step: the last rank needs 50 ms longer for each step. SLOW=epoch: it needs 2 s longer after each epoch.
    EPOCHS: how many to train for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

STEPS, BATCH_SIZE = 40, 8  # a step takes about 30 ms on a virtual V100


def main(folder: Path, kind: str) -> None:
    rank = int(os.environ["RANK"])
    os.dup2(os.open(folder / f"rank{rank}.stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    (folder / f"rank{rank}.pid").write_text(str(os.getpid()))

    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    from zeus import ZeusDataLoader
    from zeus.device.find import find

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    plain = torch.nn.Linear(8, 1)
    model: Any = (
        FullyShardedDataParallel(plain, device_id=torch.device("cpu"))
        if kind == "fsdp"
        else DistributedDataParallel(plain)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = torch.utils.data.TensorDataset(torch.ones(BATCH_SIZE * STEPS, 8))
    batches = ZeusDataLoader(data, BATCH_SIZE, max_epochs=int(os.environ.get("EPOCHS", "6")))
    slow = os.environ.get("SLOW", "") if rank == dist.get_world_size() - 1 else ""
    first_here = os.environ["LOCAL_RANK"] == "0"
    cards = list(find().values()) if first_here else []
    limits: list[float] = []
    before = 0.0
    for epoch in batches.epochs():
        before = before if epoch else sum(card.energy() for card in cards)
        for (batch,) in batches:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.05 if slow == "step" else 0)
        time.sleep(2.0 if slow == "epoch" else 0)
        limits = [card.limit() for card in cards]
        (folder / f"rank{rank}.epochs").write_text(str(epoch + 1))
    after = sum(card.energy() for card in cards)
    summary = batches.summary
    told = {
        "rank": rank,
        "limits": limits,  # of this node's cards after the last epoch; on the first rank of the node
        "counters": after - before,  # of the same cards
        "joules": summary.joules,
        "seconds": summary.seconds,
        "max_watts": (summary.cost - 0.5 * summary.joules) / (0.5 * summary.seconds),  # Equation 2 with η = 0.5
        "waited": summary.waiting.seconds,
        "waited_cost": summary.waiting.cost,
        "why_not": summary.why_not,
        "epochs": summary.epochs,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
