"""`zeus run` where a batch is too large for a GPU: it is accumulated, and what fits is found and remembered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.launch_place import Place, tries
from zeus.job import Ending

pytestmark = pytest.mark.usefixtures("warm_torch")

# Fits so many samples on a GPU; works on it for a while before it notices, as trainings do.
SCRIPT = """
import os, pathlib, sys
from zeus.device.find import find
from zeus.device.virtual import step

per_device, accumulation, world = map(int, sys.argv[1:4])
told = [os.environ["ZEUS_PER_DEVICE_BATCH_SIZE"], os.environ["ZEUS_ACCUMULATION_STEPS"]]
assert told == sys.argv[1:3]
with open("starts", "a") as file: print(*sys.argv[1:4], file=file)
gpus = list(find().values())
step(gpus, 16)
if per_device > 16: sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
for epoch in (1, 2):
    for _ in range(20):
        for _ in range(accumulation):
            step(gpus, per_device)
    print(f"acc={0.5 * epoch}", flush=True)
"""
COMMAND = "{python} train.py {per_device_batch_size} {accumulation_steps} {world_size} {batch_size}"
METRIC = r"regex = 'acc=(\S+)'"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path, "virtual:v100x2?clock=virtual")
    (tmp_path / "train.py").write_text(SCRIPT)
    return here


def starts(place: Place) -> list[tuple[int, ...]]:
    return [tuple(map(int, line.split())) for line in (place.folder / "starts").read_text().splitlines()]


def job(place: Place, **values: object) -> None:
    sizes = {"batch_sizes": [128], "default_batch_size": 128, "mode": "off"}
    place.job(metrics=METRIC, **({"command": COMMAND} | sizes | values))


def test_a_batch_that_is_too_large_is_accumulated_in_parts_of_the_given_size(place: Place) -> None:
    job(place, micro_batch_size=12)
    (only,) = tries(place.report())
    assert (only["ending"], only["batch_size"], only["micro_batch_size"]) == ("converged", 128, 8)
    assert starts(place) == [(8, 8, 2)]


def test_without_it_the_command_gets_each_gpus_share(place: Place) -> None:
    job(place, batch_sizes=[32], default_batch_size=32)
    (only,) = tries(place.report())
    assert (only["ending"], only["micro_batch_size"]) == ("converged", None)
    assert starts(place) == [(16, 1, 2)]


def test_what_fits_is_found_once_and_remembered_and_the_failed_starts_are_charged(place: Place) -> None:
    job(place, micro_batch_size="auto")
    done = place.run("--json")
    assert done.returncode == 0, done.stderr
    (only,) = tries(json.loads(done.stdout))
    assert (only["ending"], only["micro_batch_size"]) == ("converged", 16)
    assert starts(place) == [(64, 1, 2), (32, 2, 2), (16, 4, 2)]
    assert "64 samples on a GPU do not fit in memory; this start used" in done.stderr
    assert "started again with 16 samples on each GPU, accumulated over 4 batches" in done.stderr

    job(place, micro_batch_size="auto", batch_sizes=[128, 256], default_batch_size=256)
    again = tries(place.report("--revise"))
    assert starts(place)[3:] == [(16, 8, 2) if one["batch_size"] == 256 else (16, 4, 2) for one in again]
    job(place, micro_batch_size=16, name="other")
    (alone,) = tries(place.report())
    assert only["joules"] > alone["joules"] and only["seconds"] > alone["seconds"]
    assert only["epochs"] == alone["epochs"] == 2


def test_a_training_of_which_not_one_sample_fits_has_crashed(place: Place) -> None:
    (place.folder / "train.py").write_text(SCRIPT.replace("per_device > 16", "per_device"))
    job(place, micro_batch_size="auto", batch_sizes=[8], default_batch_size=8)
    done = place.run("--json")
    (only,) = tries(json.loads(done.stdout))
    assert (done.returncode, only["ending"]) == (1, "crashed")
    assert starts(place) == [(4, 1, 2), (2, 2, 2), (1, 4, 2)]
    assert only["seconds"] > 0


def test_a_crash_for_another_reason_is_not_started_again(place: Place) -> None:
    (place.folder / "train.py").write_text(SCRIPT.replace("torch.OutOfMemoryError: CUDA out of memory. ", "No: "))
    job(place, micro_batch_size="auto", batch_sizes=[64], default_batch_size=64)
    assert tries(place.report(status=1))[0]["ending"] == "crashed"
    assert starts(place) == [(32, 1, 2)]


@pytest.mark.parametrize("values", [{}, {"micro_batch_size": 8}, {"micro_batch_size": "auto"}])
def test_a_size_that_the_gpus_cannot_share_is_refused_before_anything_runs(
    place: Place, values: dict[str, object]
) -> None:
    job(place, batch_sizes=[31, 32], default_batch_size=32, **values)
    done = place.run()
    assert done.returncode == 2
    assert "batch size 31 cannot be shared evenly by 2 GPUs. Give a multiple of 2. Or choose other GPUs" in done.stderr
    assert not (place.folder / "starts").exists() and not (place.folder / "zeus.db").exists()


LISTING = """
import os, torch
from zeus import ZeusDataLoader
data = torch.utils.data.TensorDataset(torch.zeros(1280, 1))
loader = ZeusDataLoader(data, 7, max_epochs=99, target_metric=0.1)
seen = 0
for epoch in loader.epochs():
    for batch in loader:
        seen += 1
        if len(batch[0]) > 32 and seen > 2: raise torch.OutOfMemoryError("CUDA out of memory")
        assert len(batch[0]) * loader.accumulation_steps == 128
    loader.report_metric(0.45 * (epoch + 1))
assert seen == 2 * 10 * loader.accumulation_steps
"""


def test_listing_1_is_split_without_a_change_of_the_job(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    place = Place(tmp_path, "virtual:v100?clock=virtual")
    place.job(metrics="", command="{python} train.py", batch_sizes=[128], default_batch_size=128)
    top = (tmp_path / "job.toml").read_text()
    (tmp_path / "job.toml").write_text('micro_batch_size = "auto"\nmode = "off"\n' + top)
    (tmp_path / "train.py").write_text(LISTING)
    (only,) = tries(place.report())
    assert (only["ending"], only["epochs"], only["micro_batch_size"]) == ("converged", 2, 32)
    assert only["limits"] == {"250": 20}  # steps: the batches of each were counted as one
    outcome = place.store().trial("toy", 1).trial.outcome
    assert outcome is not None and outcome.ending is Ending.CONVERGED and outcome.joules is not None
    of_the_last_start = sum(one.joules or 0 for one in outcome.stretches)
    assert outcome.joules > of_the_last_start * 1.05
