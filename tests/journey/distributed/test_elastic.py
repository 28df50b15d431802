"""Ranks that torchrun starts again: the trial continues where its epochs stand, and every joule is charged once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.launch_place import Place, tries
from support.programs import need_loopback_alone
from zeus.device.virtual.machine import _shared_machine, parse

pytest.importorskip("torch.distributed", reason="needs `pip install torch`")

GPU = "v100x2?clock=virtual&load=resnet50"
TORCHRUN = f"{sys.executable} -m torch.distributed.run --nproc-per-node 2"
ELASTIC = (
    f"{TORCHRUN} --nnodes 1:2 --max-restarts 3 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 --rdzv-id zeus "
    "--local-addr 127.0.0.1 --rdzv-conf last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=2"
)
SCRIPT = """
import os, signal, sys
from pathlib import Path
import torch, torch.distributed as dist
from zeus import ZeusDataLoader

resumes, lives = sys.argv[1] != "begin again", Path(f"lives{os.environ['RANK']}")
life = len(lives.read_text()) if lives.exists() else 0
lives.write_text("." * (life + 1))
torch.set_num_threads(1)
dist.init_process_group("gloo")
checkpoint = Path("checkpoint")
done = int(checkpoint.read_text()) if resumes and checkpoint.exists() else 0
batches = ZeusDataLoader(torch.utils.data.TensorDataset(torch.zeros(128 * 20, 1)), 128, max_epochs=20)
print(f"life {life}: {dist.get_world_size()} ranks, epoch {done}, size {batches.batch_size}", flush=True)
for epoch in batches.epochs(done):
    for step, _ in enumerate(batches):
        if dist.get_world_size() == 4:
            dist.all_reduce(torch.zeros(1))  # fails once a rank is gone
        if sys.argv[1] == "far" and (epoch, step) == (3, 10):
            os.kill(os.getppid(), signal.SIGKILL)  # the whole node goes
            os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[1] in ("resume", "begin again") and (life, epoch, step, dist.get_rank()) == (0, 3, 10, 1):
            os.kill(os.getpid(), signal.SIGKILL)
    batches.report_metric((epoch + 1) / 10)
    if dist.get_rank() == 0:
        checkpoint.write_text(str(epoch + 1))
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    need_loopback_alone()
    place = Place(tmp_path, f"virtual:{GPU}")
    place.env |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else torch's own ranks cannot meet again
        "XDG_RUNTIME_DIR": str(tmp_path),
    }
    (tmp_path / "train.py").write_text(SCRIPT)
    return place


def job(place: Place, commands: str) -> None:
    """A job whose command is this shell script, in a network of its own."""
    (place.folder / "train.sh").write_text(f"ip link set lo up\n{commands}\n")
    place.job(
        metrics="",
        command="unshare --net sh train.sh",
        batch_sizes=[256],
        default_batch_size=256,
        target_metric=0.6,
        max_epochs=20,
    )


@pytest.mark.peers
@pytest.mark.parametrize("how", ["resume", "begin again"])
def test_a_trial_whose_ranks_are_started_again_is_charged_for_both_lives_once(place: Place, how: str) -> None:
    job(place, f"{TORCHRUN} --standalone --max-restarts 1 train.py '{how}'")
    report = place.report()
    (trial,) = tries(report)
    logs = "".join(file.read_text() for file in place.folder.rglob("*.log"))
    assert "life 1" in logs, logs
    cards = _shared_machine(parse(GPU), place.folder / "cards").gpus
    assert (trial["ending"], trial["epochs"]) == ("converged", 6)
    assert trial["joules"] == pytest.approx(sum(card.energy() for card in cards), rel=0.01)
    assert trial["seconds"] == pytest.approx(cards[0].clock.now(), rel=0.02)
    assert [card.limit() for card in cards] == [250, 250]
    assert not list(place.folder.rglob("trials/*.json"))  # no note is left behind


@pytest.mark.peers  # takes a minute
def test_a_trial_goes_on_with_fewer_ranks_after_a_node_is_lost(place: Place) -> None:
    (place.folder / "far").mkdir()
    far = " ".join(
        f"{name}={place.folder / 'far' / part}"
        for name, part in {"ZEUS_VIRTUAL_STATE": "cards", "ZEUS_KEEPER_STATE": "keeper", "XDG_RUNTIME_DIR": "."}.items()
    )
    near, lost = f"{ELASTIC},is_host=1 train.py near", f"{ELASTIC},is_host=0 train.py far"  # where ranks meet must stay
    job(place, f"{near} & near=$!\n{far} {lost} &\nwait $near")
    (trial,) = tries(place.report())
    logs = "".join(file.read_text() for file in place.folder.rglob("*.log"))
    assert "4 ranks" in logs, logs
    assert "2 ranks, epoch 3, size 128" in logs, logs
    assert (trial["ending"], trial["epochs"]) == ("converged", 6)
    assert trial["joules"] is None  # what the lost node used since the third epoch is known to nobody
    assert trial["seconds"] > 0
