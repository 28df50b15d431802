"""One rank of a distributed training, started as `python ranks.py FOLDER WHAT`. It prints one JSON line."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

EPOCHS, STEPS, BATCH_SIZE = 12, 20, 256

TESTS = Path(__file__).parents[1]


def main(folder: Path, what: str) -> dict[str, Any]:
    """Train as told; what this rank came to see."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    try:
        return {
            "train": train,
            "lose": lose,
            "some": some,
            "leave": leave,
            "loader": loader,
            "slow": slow,
            "ddp": partial(wrapped, kind="ddp"),
            "fsdp": partial(wrapped, kind="fsdp"),
            "sizes": sizes,
            "handed": handed,
            "hf": hf,
            "lightning": lightning,
        }[what](folder)
    finally:
        dist.destroy_process_group()


def loop(optimizer: Any, after: Callable[[int], None]) -> None:
    """Epochs of modelled steps; afterwards the machine meets, as it does at the end of any DDP training."""
    from zeus.device.virtual import step
    from zeus.distributed.group import rank_group

    optimizer.on_train_begin()
    for epoch in range(EPOCHS):
        optimizer.on_epoch_begin()
        for number in range(STEPS):
            optimizer.on_step_begin()
            step(optimizer.monitor.gpus.values(), BATCH_SIZE)
            optimizer.on_step_end()
            after(epoch * STEPS + number)
        optimizer.on_epoch_end()
    rank_group().gather(None)


def train(folder: Path) -> dict[str, Any]:
    """The plain optimizer."""
    from zeus.distributed.group import broadcast, rank_group
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), profile_path=folder / "profile.json", group=rank_group())
    with optimizer.monitor.window("training") as window:
        loop(optimizer, lambda _: None)
    told = report(optimizer) | {"joules": window.joules, "seconds": window.seconds}
    told["broadcast"] = broadcast(f"said by {os.environ['RANK']}")
    optimizer.on_train_end()
    return told


def lose(folder: Path) -> dict[str, Any]:
    """Rank 1 loses its keeper in the middle of the profiling."""
    from zeus.distributed.group import rank_group
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), group=rank_group())
    gave_up: list[int] = []

    def after(number: int) -> None:
        if number == 8 and os.environ["RANK"] == "1":
            assert optimizer._limits.lease is not None
            os.kill(optimizer._limits.lease._channel.keeper_pid, signal.SIGKILL)
        if not optimizer.is_profiling:
            gave_up.append(number)

    loop(optimizer, after)
    optimizer.on_train_end()
    return report(optimizer) | {"gave_up": gave_up[0]}


def some(folder: Path) -> dict[str, Any]:
    """Only rank 0 uses Zeus."""
    import torch.distributed as dist

    from zeus.distributed.group import rank_group
    from zeus.distributed.store_group import current

    size = 0
    if os.environ["RANK"] == "0":
        current().everyone(seconds=1)
        size = rank_group().size
    dist.barrier()
    return {"size": size}


def leave(folder: Path) -> dict[str, Any]:
    """Rank 1 fails in the middle of an epoch, as one that is out of memory does."""
    from zeus.device.virtual import step
    from zeus.distributed.group import rank_group
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), group=rank_group())
    optimizer.on_epoch_begin()
    try:
        for number in range(40):
            step(optimizer.monitor.gpus.values(), BATCH_SIZE)
            optimizer.on_step_end()
            if number == 8 and os.environ["RANK"] == "1":
                raise MemoryError
    except MemoryError:
        optimizer.on_epoch_end()
    optimizer.on_train_end()
    return report(optimizer)


def loader(folder: Path) -> dict[str, Any]:
    """Listing 1."""
    import torch

    from zeus import ZeusDataLoader

    data = torch.utils.data.TensorDataset(torch.zeros(256 * STEPS, 1))
    batches = ZeusDataLoader(data, BATCH_SIZE, max_epochs=EPOCHS, target_metric=0.5)
    slowness = 10 if os.environ["RANK"] == "0" else 1000  # the first rank's metric counts
    for epoch in batches.epochs():
        for _ in batches:
            pass
        batches.report_metric(epoch / slowness)
    summary = batches.summary
    return {
        "epochs": summary.epochs,
        "limit": summary.limit,
        "seconds": summary.seconds,
        "joules": summary.joules,
        "batch_size": batches.batch_size,
        "accumulation_steps": batches.accumulation_steps,
    }


def slow(folder: Path) -> dict[str, Any]:
    """Listing 1, in which rank 1 has twice as much to do as rank 0."""
    import torch

    from zeus import ZeusDataLoader
    from zeus.device.find import find
    from zeus.device.virtual import step

    data = torch.utils.data.TensorDataset(torch.zeros(256 * STEPS, 1))
    batches = ZeusDataLoader(data, BATCH_SIZE, max_epochs=2, eta=0.5, mode="off")
    for _ in batches.epochs():
        for _ in batches:
            if os.environ["RANK"] == "1":
                step(find().values(), BATCH_SIZE)
    summary = batches.summary
    return {
        "waited": summary.waiting.seconds,
        "waited_cost": summary.waiting.cost,
        "seconds": summary.seconds,
        "cost": summary.cost,
    }


def wrapped(folder: Path, kind: str) -> dict[str, Any]:
    """Listing 1 with a model that all ranks train together."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    from zeus import ZeusDataLoader

    torch.manual_seed(0)
    plain = torch.nn.Linear(8, 1)
    model: Any = (
        DistributedDataParallel(plain)
        if kind == "ddp"
        else FullyShardedDataParallel(plain, device_id=torch.device("cpu"))
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = torch.utils.data.TensorDataset(torch.ones(256 * STEPS, 8))
    batches = ZeusDataLoader(data, BATCH_SIZE, max_epochs=5)
    for _ in batches.epochs():
        for (batch,) in batches:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
        batches.report_metric(1 - float(loss))
    summary = batches.summary
    return {"limit": summary.limit, "joules": summary.joules, "epochs": summary.epochs, "why_not": summary.why_not}


def sizes(folder: Path) -> dict[str, Any]:
    """A batch size for all, from the first rank's store; the second rank cannot even reach it."""
    from zeus.device.virtual import step
    from zeus.errors import InputError
    from zeus.job import JobSpec
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.batch_size import BatchSizeOptimizer

    rank = int(os.environ["RANK"])
    spec = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(64, 128), default_batch_size=128, max_epochs=9)
    optimizer = BatchSizeOptimizer(ZeusMonitor(), f"sqlite:///{folder}/zeus.db" if rank == 0 else None, spec, rank)
    chosen = []
    for reaches_after in (2, 99):
        chosen.append(optimizer.get_batch_size())
        optimizer.on_train_begin()
        epochs = 0
        while not optimizer.training_finished:
            for _ in range(STEPS):
                step(optimizer.monitor.gpus.values(), chosen[-1])
            epochs += 1
            optimizer.on_evaluate(0.9 if epochs == reaches_after and rank == 0 else 0.1)
    told: dict[str, Any] = {"sizes": chosen, "epochs": epochs, "converged": optimizer.converged}
    if rank == 0:
        optimizer._source._job = None
        optimizer._source._where = "nonsense"  # a failure is every rank's, so that none is left waiting
    try:
        optimizer.get_batch_size()
    except InputError as refused:
        told["refused"] = str(refused)
    return told


def handed(folder: Path) -> dict[str, Any]:
    """As scripts for the existing package do it: the first rank asks and hands the trial on, and tunes the limit."""
    import torch
    import torch.distributed as dist

    from zeus.callback import CallbackSet
    from zeus.device.virtual import step
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.batch_size import BatchSizeOptimizer, JobSpec
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

    monitor, rank = ZeusMonitor(gpu_indices=None), dist.get_rank()
    job = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=[128, 256], default_batch_size=128, target_metric=0.8)
    optimizer = BatchSizeOptimizer(monitor, f"sqlite:///{folder}/zeus.db", job, rank=rank)
    if rank == 0:
        callbacks = CallbackSet([GlobalPowerLimitOptimizer(monitor), optimizer])
        trial = torch.tensor([optimizer.get_batch_size(), optimizer.trial_number])
    else:
        callbacks, trial = CallbackSet([optimizer]), torch.tensor([0, 0])
    dist.broadcast(trial, src=0)
    optimizer.current_batch_size, optimizer.trial_number = int(trial[0]), int(trial[1])
    callbacks.on_train_begin()
    for epoch in range(1, EPOCHS + 1):
        callbacks.on_epoch_begin()
        for _ in range(STEPS):
            callbacks.on_step_begin()
            step([list(monitor.gpus.values())[rank]], optimizer.current_batch_size // 2)
            callbacks.on_step_end()
        callbacks.on_epoch_end()
        callbacks.on_evaluate(0.1 * epoch)
        if optimizer.training_finished:
            break
    assert optimizer.job is not None
    return {
        "size": optimizer.current_batch_size,
        "trial": optimizer.trial_number,
        "epochs": optimizer.cur_epoch,
        "job": optimizer.job.job_id,
        "max_power": optimizer.max_power,
    }


def hf(folder: Path) -> dict[str, Any]:
    """A Hugging Face Trainer with DDP."""
    sys.path.insert(0, str(TESTS))
    sys.path.insert(0, str(TESTS / "journey" / "training"))
    from test_huggingface import trainer

    from zeus.device.find import machine
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
    from zeus.training.huggingface import EnergyCallback

    power, energy = HFGlobalPowerLimitOptimizer(ZeusMonitor()), EnergyCallback()
    trained = trainer(folder, [power, energy], size=1600, ddp_backend="gloo", eval_strategy="steps", eval_steps=30)
    trained.train()
    history = [row for row in trained.state.log_history if "loss" in row]
    return {
        "best": power.best_limit,
        "profile": power.profile and power.profile.to_json(),
        "joules": energy.joules,
        "logged": history[-1]["zeus/joules_per_sample"],
        "cards": sum(gpu.energy() for gpu in machine()),
    }


def lightning(folder: Path) -> dict[str, Any]:
    """A Lightning Trainer with DDP."""
    sys.path.insert(0, str(TESTS))
    sys.path.insert(0, str(TESTS / "journey" / "training"))
    from test_lightning import fit

    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
    from zeus.training.lightning import EnergyCallback

    energy = EnergyCallback(optimizer=GlobalPowerLimitOptimizer)
    fit(folder, [energy], size=3200, strategy="ddp", devices=2)
    assert energy.optimizer is not None
    return {"best": energy.optimizer.best_limit, "joules": energy.joules}


def report(optimizer: Any) -> dict[str, Any]:
    """What a rank knows of the power limit."""
    from zeus.device.find import machine

    return {
        "best": optimizer.best_limit,
        "profile": optimizer.profile and optimizer.profile.to_json(),
        "limits": [gpu.limit() for gpu in machine()],
        "why_not": optimizer.why_not,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])), flush=True)
