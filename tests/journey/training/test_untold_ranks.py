"""Ranks whose launcher puts no place on their node into the environment: each GPU still counts once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.programs import LOOPBACK_ALONE, need_loopback_alone, python_env, run_python

pytestmark = pytest.mark.usefixtures("warm_frameworks")

pytest.importorskip("torch", reason="needs `pip install torch`")

# Each rank writes the energy that Zeus told it, its measurement of one window, and what the cards themselves counted.
END = """
def tell(rank, joules, window):
    used = [card.energy() for card in find().values()]
    Path(f"{rank}.json").write_text(json.dumps({"told": joules, "window": window, "cards": sum(used)}))
"""
SPAWNED = (
    """
import json
from pathlib import Path
import torch
from zeus.device.find import find
from zeus.distributed.group import rank_group
from zeus.monitor import ZeusMonitor
"""
    + END
    + """
def train(rank, before):
    monitor = ZeusMonitor() if before else None
    place = f"file://{Path('ranks').absolute()}"
    torch.distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    monitor = monitor or ZeusMonitor()
    torch.distributed.barrier()
    monitor.begin_window("steps", sync_execution=False)
    torch.distributed.barrier()
    for _ in range(50):
        monitor.report_step(8)
    torch.distributed.barrier()
    window = monitor.end_window("steps", sync_execution=False).total_energy
    joules = sum(rank_group().gather(window))
    torch.distributed.barrier()
    tell(rank, joules, window)

if __name__ == "__main__":
    import sys
    torch.multiprocessing.spawn(train, (sys.argv[1] == "before",), nprocs=2)
"""
)
LIGHTNING = (
    """
import json
from pathlib import Path
import torch
from lightning.pytorch import LightningModule, Trainer
from zeus.device.find import find
from zeus.training.lightning import EnergyCallback
"""
    + END
    + """
class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        return self.line(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    data = torch.utils.data.TensorDataset(torch.randn(800, 1))
    energy = EnergyCallback()
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, enable_progress_bar=False, logger=False,
        enable_checkpointing=False, callbacks=[energy],
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=8))
    tell(trainer.global_rank, energy.joules, None)
"""
)


def run(folder: Path, code: str, *arguments: str, around: Sequence[str] = ()) -> tuple[list[dict[str, float]], str]:
    """What each of two ranks wrote, and what they printed on stderr."""
    (folder / "train.py").write_text(code)
    env = python_env(without=("ZEUS_", "CUDA_")) | {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "XDG_RUNTIME_DIR": str(folder),
        "ZEUS_GPU": "virtual:v100x2?clock=virtual",
        "ZEUS_KEEPER_STATE": str(folder / "keeper"),
        "ZEUS_VIRTUAL_STATE": str(folder / "cards"),
    }
    done = run_python("train.py", *arguments, cwd=folder, env=env, around=around)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)], done.stderr


@pytest.mark.parametrize("made", ["before", "after"], ids=["monitors made first", "ranks connected first"])
def test_spawned_ranks_count_each_gpu_once(tmp_path: Path, made: str) -> None:
    ranks, _ = run(tmp_path, SPAWNED, made)
    first, second = ranks
    assert first["told"] == second["told"] == pytest.approx(first["cards"], rel=1e-6)
    assert first["told"] > 0
    assert sorted([first["window"], second["window"]]) == [0.0, pytest.approx(first["told"])]


@pytest.mark.peers
def test_lightnings_own_launcher_has_each_gpu_counted_once_and_one_line_printed(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="needs `pip install lightning`")
    need_loopback_alone()
    (first, second), printed = run(tmp_path, LIGHTNING, around=LOOPBACK_ALONE)
    assert first["told"] == second["told"] == pytest.approx(first["cards"], rel=1e-6)
    assert sum(line.startswith("zeus:") for line in printed.splitlines()) == 1
