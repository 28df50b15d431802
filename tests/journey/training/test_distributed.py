"""Ranks on virtual cards of one node or two: one limit, energy counted once, nobody left waiting."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.cards import RESNET_X2, VirtualCards
from support.paths import SOURCES, TESTS
from support.waiting import PATIENCE_SECONDS
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.device.ranks import Rank, own, rank
from zeus.device.virtual import VirtualGpu, VirtualMachine, presets, virtual_gpus
from zeus.device.virtual.machine import RankClock, StateClock
from zeus.device.virtual.physics import operate
from zeus.device.virtual.state import CardState, MachineState, MemoryState
from zeus.job import Ending, Gpus, JobSpec
from zeus.profile import ProfileKey
from zeus.store import open_store

pytestmark = pytest.mark.usefixtures("warm_torch")

GPU = RESNET_X2


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs `pip install {' '.join(packages)}`")


@pytest.fixture
def cards(virtual_cards: VirtualCards, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[VirtualGpu]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return virtual_cards(GPU)


def test_two_ranks_are_charged_for_the_cpu_of_their_node_once(
    cards: list[VirtualGpu], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZEUS_GPU", f"virtual:{GPU}&cpu=100&dram=10")
    monkeypatch.setenv("ZEUS_MODE", "off")
    told = []
    for include in ("gpu", "gpu,cpu"):
        monkeypatch.setenv("ZEUS_COST_INCLUDE", include)
        folder = tmp_path / include
        folder.mkdir()
        first, second = launch(folder, "loader")
        assert first == second
        told.append(first)
    alone, both = told
    # Two ranks move one virtual clock, so runs differ a little. Counted twice, the CPU would add 220 W.
    added = both["joules"] / both["seconds"] - alone["joules"] / alone["seconds"]
    assert added == pytest.approx(110, rel=0.2)


def node(folder: Path, number: int) -> dict[str, str]:
    """The environment of a further node: cards, a keeper and a folder for locks of its own."""
    names = ("ZEUS_VIRTUAL_STATE", "ZEUS_KEEPER_STATE", "XDG_RUNTIME_DIR")
    (folder / f"node{number}" / "run").mkdir(parents=True, exist_ok=True)
    return {
        name: str(folder / f"node{number}" / part) for name, part in zip(names, ("cards", "keeper", "run"), strict=True)
    }


def launch(folder: Path, what: str, masked: bool = False, nodes: int = 1) -> list[dict[str, Any]]:
    """What each rank told, of two on each node."""
    places = [
        (node(folder, place // 2) if place > 1 else {})
        | {
            "RANK": str(place),
            "LOCAL_RANK": str(place % 2),
            "WORLD_SIZE": str(2 * nodes),
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "0",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]),
        }
        for place in range(2 * nodes)
    ]
    if masked:
        for env in places:
            env["CUDA_VISIBLE_DEVICES"] = env["LOCAL_RANK"]
    command = [sys.executable, str(TESTS / "support" / "ranks.py"), str(folder), what]
    running = [
        subprocess.Popen(command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for env in places
    ]
    try:
        ended = [process.communicate(timeout=PATIENCE_SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (_, errors) in zip(running, ended, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(output.splitlines()[-1]) for output, _ in ended]


@needs("torch")
@pytest.mark.parametrize("masked", [False, True], ids=["every rank sees both cards", "each sees its own"])
def test_ranks_agree_on_one_limit_for_all_cards(cards: list[VirtualGpu], tmp_path: Path, masked: bool) -> None:
    one, other = launch(tmp_path, "train", masked)
    assert one["best"] == other["best"] < 250
    assert one["limits"] == other["limits"] == [one["best"]] * 2
    kept = json.loads((tmp_path / "profile.json").read_text())
    assert kept.pop("key")["gpu_count"] == 2
    assert one["profile"] == other["profile"] == kept
    assert one["why_not"] is other["why_not"] is None
    assert [gpu.limit() for gpu in cards] == [250, 250]
    assert one["broadcast"] == other["broadcast"] == "said by 0"

    assert one["joules"] + other["joules"] == pytest.approx(sum(gpu.energy() for gpu in cards))
    assert (other["joules"] == 0) != masked
    assert one["seconds"] == pytest.approx(other["seconds"]) == pytest.approx(cards[0].clock.now())
    for row in one["profile"]["measurements"]:  # side by side: a step takes as long as on one card, at twice its energy
        step = operate(presets.card("v100"), presets.load("v100", "resnet50"), 256, row["power_limit"])
        assert row["time"] / row["steps"] == pytest.approx(step.seconds)
        assert row["energy"] / row["steps"] == pytest.approx(2 * step.joules)


@needs("torch")
def test_a_keeper_lost_by_one_rank_has_both_give_up_at_the_same_step(cards: list[VirtualGpu], tmp_path: Path) -> None:
    one, other = launch(tmp_path, "lose", masked=True)
    assert one["gave_up"] == other["gave_up"] > 8
    assert "keeper" in other["why_not"]
    assert one["best"] is other["best"] is None
    assert [gpu.limit() for gpu in cards] == [250, 250]


@needs("torch")
def test_a_rank_whose_fellows_do_not_use_zeus_goes_on_alone(cards: list[VirtualGpu], tmp_path: Path) -> None:
    assert [told["size"] for told in launch(tmp_path, "some")] == [1, 0]


@needs("torch")
def test_a_rank_that_fails_waits_for_nobody(cards: list[VirtualGpu], tmp_path: Path) -> None:
    one, other = launch(tmp_path, "leave")
    assert one["why_not"] == "rank 1 has ended"
    assert other["best"] is None
    assert [gpu.limit() for gpu in cards] == [250, 250]


@needs("torch")
@pytest.mark.parametrize("masked", [False, True], ids=["every rank sees both cards", "each sees its own"])
def test_listing_1_on_two_ranks(cards: list[VirtualGpu], tmp_path: Path, masked: bool) -> None:
    one, other = launch(tmp_path, "loader", masked)
    assert one["limit"] == other["limit"] < 250
    assert one["epochs"] == other["epochs"] == 6
    assert one["seconds"] == pytest.approx(other["seconds"])
    assert one["joules"] == other["joules"] == pytest.approx(sum(gpu.energy() for gpu in cards), rel=0.01)
    assert [gpu.limit() for gpu in cards] == [250, 250]


@needs("torch")
def test_the_launchers_batch_size_is_that_of_all_ranks_together(
    cards: list[VirtualGpu], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_MODE", "off")
    monkeypatch.setenv("ZEUS_BATCH_SIZE", "512")
    for parts in (1, 4):
        monkeypatch.setenv("ZEUS_ACCUMULATION_STEPS", str(parts))
        (tmp_path / str(parts)).mkdir()
        ranks = launch(tmp_path / str(parts), "loader")
        assert [(one["batch_size"], one["accumulation_steps"]) for one in ranks] == [(256 // parts, parts)] * 2


@needs("torch")
def test_two_nodes_agree_on_one_limit_and_count_each_card_once(
    cards: list[VirtualGpu], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = launch(tmp_path, "train", nodes=2)
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", node(tmp_path, 1)["ZEUS_VIRTUAL_STATE"])
    far = virtual_gpus(GPU)
    assert {told["best"] for told in ranks} == {ranks[0]["best"]} and ranks[0]["best"] < 250
    assert [told["limits"] for told in ranks] == [[ranks[0]["best"]] * 2] * 4
    assert all(told["profile"] == ranks[0]["profile"] and told["why_not"] is None for told in ranks)
    assert json.loads((tmp_path / "profile.json").read_text())["key"]["gpu_count"] == 4
    assert ranks[0]["joules"] + ranks[1]["joules"] == pytest.approx(sum(gpu.energy() for gpu in cards))
    assert ranks[2]["joules"] + ranks[3]["joules"] == pytest.approx(sum(gpu.energy() for gpu in far))
    assert [gpu.limit() for gpu in (*cards, *far)] == [250] * 4
    for row in ranks[0]["profile"]["measurements"]:
        step = operate(presets.card("v100"), presets.load("v100", "resnet50"), 256, row["power_limit"])
        assert row["energy"] / row["steps"] == pytest.approx(4 * step.joules)


@needs("torch")
def test_listing_1_on_two_nodes(cards: list[VirtualGpu], tmp_path: Path) -> None:
    ranks = launch(tmp_path, "loader", nodes=2)
    assert all(told == ranks[0] for told in ranks)
    assert ranks[0]["epochs"] == 6 and ranks[0]["limit"] < 250


@needs("torch")
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_model_of_several_ranks_is_trained_at_one_limit(cards: list[VirtualGpu], tmp_path: Path, kind: str) -> None:
    one, other = launch(tmp_path, kind)
    assert one == other
    assert one["limit"] < 250 and one["epochs"] == 5 and one["why_not"] is None
    assert one["joules"] == pytest.approx(sum(gpu.energy() for gpu in cards), rel=0.01)


@needs("torch")
def test_each_rank_tells_how_long_it_waited_for_the_slowest_and_what_that_cost(
    cards: list[VirtualGpu], tmp_path: Path
) -> None:
    fast, slow = launch(tmp_path, "slow")
    step = operate(presets.card("v100"), presets.load("v100", "resnet50"), 256, 250)
    assert fast["waited"] == pytest.approx(2 * 20 * step.seconds)  # two epochs of 20 steps that only rank 1 had to do
    assert slow["waited"] == pytest.approx(0, abs=1e-9)
    # Equation 3 at the training's average power, which is its cost by its time; one of two ranks waited
    assert fast["waited_cost"] == pytest.approx(fast["cost"] / fast["seconds"] * fast["waited"] / 2)


@needs("torch")
def test_under_zeus_run_the_first_rank_speaks_for_all(
    cards: list[VirtualGpu], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/zeus.db"
    store = open_store(url)
    spec = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(256,), default_batch_size=256, power_limits=[200])
    job = RecurringJob.register(LocalJobs(store), spec)
    here = Gpus(cards[0].spec.name, 2, 500.0)
    for name, value in {"JOB_ID": "asr", "STORE": url, "TARGET_METRIC": "0.5"}.items():
        monkeypatch.setenv(f"ZEUS_{name}", value)
    for turn in (1, 2):  # the second begins with the first one's profile, on both ranks
        monkeypatch.setenv("ZEUS_TRIAL", str(job.ask(here).number))
        (tmp_path / "meeting").unlink(missing_ok=True)
        one, other = launch(tmp_path, "loader")
        assert one == other
        assert (one["epochs"], one["limit"]) == (6, 200)
        outcome = job.trial(turn).outcome
        assert outcome is not None
        assert (outcome.ending, outcome.epochs, outcome.joules) == (Ending.CONVERGED, 6, one["joules"])
    assert job.get(ProfileKey("asr", 256, cards[0].spec.name, 2)) is not None
    store.close()


@needs("torch")
def test_all_ranks_train_with_the_first_ones_batch_size_and_stop_together(
    cards: list[VirtualGpu], tmp_path: Path
) -> None:
    one, other = launch(tmp_path, "sizes")
    assert one == other
    assert one["sizes"] == [128, 64]
    assert 1 < one["epochs"] < 9 and not one["converged"]
    assert "nonsense" in one["refused"]
    store = open_store(f"sqlite:///{tmp_path}/zeus.db")
    first, second = (kept.trial for kept in store.trials("asr"))
    store.close()
    assert (first.ending, second.ending) == (Ending.CONVERGED, Ending.STOPPED)
    assert (first.ask.gpu_model, first.ask.max_watts) == (f"2 x {cards[0].spec.name}", 500.0)
    assert first.outcome is not None and second.outcome is not None
    joules = (first.outcome.joules or 0) + (second.outcome.joules or 0)
    assert joules == pytest.approx(sum(gpu.energy() for gpu in cards))


@needs("torch")
def test_a_script_in_which_only_the_first_rank_asks_and_hands_the_trial_on(
    cards: list[VirtualGpu], tmp_path: Path
) -> None:
    one, other = launch(tmp_path, "handed")
    assert one == other == {"size": 128, "trial": 1, "epochs": 8, "job": "asr", "max_power": 500.0}
    store = open_store(f"sqlite:///{tmp_path}/zeus.db")
    (trial,) = (kept.trial for kept in store.trials("asr"))
    store.close()
    assert (trial.ending, trial.ask.gpu_model) == (Ending.CONVERGED, f"2 x {cards[0].spec.name}")


@pytest.mark.peers
@needs("torch", "transformers", "accelerate")
def test_a_hugging_face_trainer_on_two_ranks_needs_no_change(cards: list[VirtualGpu], tmp_path: Path) -> None:
    one, other = launch(tmp_path, "hf")
    assert one["best"] == other["best"] < 250
    assert one["profile"] == other["profile"]
    assert one["joules"] == other["joules"] == pytest.approx(sum(gpu.energy() for gpu in cards))
    step = operate(presets.card("v100"), presets.load("v100", "resnet50"), 8, one["best"])
    assert one["logged"] == pytest.approx(step.joules / 8, rel=0.1)
    assert [gpu.limit() for gpu in cards] == [250, 250]


@pytest.mark.peers
@needs("torch", "lightning")
def test_a_lightning_trainer_on_two_ranks_needs_no_change(cards: list[VirtualGpu], tmp_path: Path) -> None:
    one, other = launch(tmp_path, "lightning")
    assert one["best"] == other["best"] < 250
    assert one["joules"] == pytest.approx(other["joules"])
    assert [gpu.limit() for gpu in cards] == [250, 250]


# ---------------------------------------------------------------------------------------------- the shared clock


def machines(count: int = 2) -> tuple[VirtualMachine, VirtualMachine, VirtualMachine]:
    """Two ranks' views of one machine, and an onlooker's."""
    one = VirtualMachine.in_memory("v100", count)
    holder = MemoryState(MachineState([CardState(limit_watts=250.0)] * count))
    views = [VirtualMachine(one.card, one.load, holder, RankClock(holder), "shared") for _ in range(2)]
    return views[0], views[1], VirtualMachine(one.card, one.load, holder, StateClock(holder), "shared")


def test_ranks_run_side_by_side_on_the_shared_clock() -> None:
    one, other, onlooker = machines()
    one.run([0], seconds=10, watts=200)
    other.run([1], seconds=4, watts=100)
    other.run([1], seconds=3, watts=100)
    assert (one.clock.now(), other.clock.now(), onlooker.clock.now()) == (10.0, 7.0, 10.0)
    assert other.gpus[1].energy() == 700.0
    assert onlooker.gpus[0].energy() == 2000.0
    assert onlooker.gpus[1].energy() == 700.0 + 3 * one.card.idle_watts


def test_a_step_reported_late_takes_the_place_of_the_idling_that_was_assumed() -> None:
    one, other, onlooker = machines()
    one.run([0], seconds=10, watts=200)
    assert one.gpus[1].energy() == 10 * one.card.idle_watts
    other.run([1], seconds=10, watts=200)
    assert one.gpus[1].energy() == onlooker.gpus[1].energy() == 2000.0


def test_two_ranks_on_one_card_queue_behind_each_other() -> None:
    one, other, onlooker = machines(count=1)
    one.run([0], seconds=5, watts=200)
    other.run([0], seconds=5, watts=100)
    assert (one.clock.now(), other.clock.now()) == (5.0, 10.0)
    assert onlooker.gpus[0].energy() == 1500.0


def test_a_rank_has_a_card_of_its_own_where_there_is_one_for_each() -> None:
    first, second = (rank({"LOCAL_RANK": str(i), "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "1"}) for i in range(2))
    assert second == Rank("1", 1, 2)
    assert own("ab", first) + own("ab", second) == ["a", "b"]
    assert own("a", second) == ["a"]
