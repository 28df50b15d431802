"""`zeus simulate`: a fixed shape, the same bytes for the same seed, any traces, help where something is off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zeus.errors import InputError
from zeus.simulate import virtual, workload_file
from zeus.simulate.traces import published

pytestmark = pytest.mark.usefixtures("warm")
FIELDS = {
    "workload": str,
    "policy": str,
    "seed": int,
    "eta": float,
    "beta": float,
    "recurrences": int,
    "cumulative_cost": float,
    "cumulative_energy": float,
    "cumulative_time": float,
    "cumulative_regret": float,
    "last5_energy_ratio": float,
    "last5_time_ratio": float,
    "choices": list,
}
POWER = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
TRAINING = "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch\n"
TOML = '["Toy"]\ndataset = "d"\nnetwork = "n"\noptimizer = "o"\ntarget = 0.7\nmax_epochs = 20\ndefault = 64\n'


def zeus(*args: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "ZEUS_DATA"}
    command = [sys.executable, "-m", "zeus.cli", "simulate", *map(str, args)]
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert ran.returncode == status, ran.stderr
    return ran


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path, 8, 16, 32)


def write_traces(folder: Path, *sizes: int) -> Path:
    """A GPU and a workload that nobody has heard of; 64 is only in the training trace."""
    power = [
        f"d,n,{size},o,{watts},{600 / size + (200 - watts) / 50},{watts * 0.9}\n"
        for size in sizes
        for watts in (100, 200)
    ]
    epochs = zip((*sizes, 64), (("3", "5"), ("6", "11"), ("13", "19"), ("20", "nan")), strict=True)
    training = [
        f"d,n,{size},o,0.1,{run + 1},0.7,{needed}\n" for size, runs in epochs for run, needed in enumerate(runs)
    ]
    (folder / "summary_power_Foo9.csv").write_text(POWER + "".join(power))
    (folder / "summary_train.csv").write_text(TRAINING + "".join(training))
    (folder / "workloads.toml").write_text(TOML)
    return folder


def toy(traces: Path, *more: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    given = ("--traces", traces, "--gpu", "foo9", "--workloads", traces / "workloads.toml", *more)
    return zeus(*given, status=status)


def test_json_has_the_agreed_shape(traces: Path) -> None:
    names = "paper,grid,grid-free,default,oracle,paper:no-early-stop,paper:no-pruning,paper:no-jit"
    said: dict[str, Any] = json.loads(
        toy(traces, "--policy", names, "--seeds", "2", "--recurrences", "15", "--json").stdout
    )
    assert said.keys() == {"gpu", "runs"}
    assert said["gpu"] == "Foo9"
    assert [(run["policy"], run["seed"]) for run in said["runs"]] == [(n, s) for n in names.split(",") for s in (0, 1)]
    for run in said["runs"]:
        assert {name: type(value) for name, value in run.items()} == FIELDS
        assert len(run["choices"]) == run["recurrences"] == 15
        assert all(size in (8, 16, 32) and watts in (100, 200) for size, watts in run["choices"])


def test_b0_is_capped_and_the_horizon_is_twice_the_grid(traces: Path) -> None:
    run = json.loads(toy(traces, "--policy", "default", "--json").stdout)["runs"][0]
    assert run["choices"] == [[32, 200]] * 12


def test_sizes_below_8_are_left_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    write_traces(tmp_path, 4, 16, 32)

    def sizes(*args: str, told: bool) -> set[int]:
        ran = toy(tmp_path, "--policy", "grid", "--recurrences", "10", "--json", *args)
        assert ("batch sizes below 8 of Toy are left out" in ran.stderr) is told
        return {size for size, _ in json.loads(ran.stdout)["runs"][0]["choices"]}

    assert sizes(told=True) == {16, 32}
    assert sizes("--smallest-batch-size", "4", told=False) == {4, 16, 32}


def test_traces_of_small_sizes_only_say_which_option_takes_them_in(tmp_path: Path) -> None:
    write_traces(tmp_path, 2, 4, 6)
    few = ("--policy", "default", "--recurrences", "2", "--json")
    assert (
        "Toy on Foo9: all batch sizes of the traces [2, 4, 6] are below the smallest batch size in use, 8. "
        "Give --smallest-batch-size 2 to use sizes from 2 up."
    ) in toy(tmp_path, *few, status=2).stderr
    run = json.loads(toy(tmp_path, *few, "--smallest-batch-size", "2").stdout)["runs"][0]
    assert run["choices"] == [[6, 200]] * 2


def test_a_default_below_the_smallest_size_is_not_replaced_in_silence(tmp_path: Path) -> None:
    write_traces(tmp_path, 4, 16, 32)
    (tmp_path / "workloads.toml").write_text(TOML.replace("default = 64", "default = 4"))
    said = toy(tmp_path, "--policy", "default", status=2).stderr
    assert "the default batch size 4 is below the smallest batch size in use, 8. Give --smallest-batch-size 4" in said


def test_the_same_seed_gives_the_same_bytes(traces: Path) -> None:
    args = ("--policy", "paper,grid", "--seeds", "2", "--concurrency", "2", "--window", "3", "--json")
    assert toy(traces, *args).stdout == toy(traces, *args).stdout


def test_the_knobs_reach_the_policy(traces: Path) -> None:
    def runs(*args: str) -> Any:
        return json.loads(
            toy(traces, "--policy", "paper", "--seeds", "3", "--recurrences", "60", "--json", *args).stdout
        )["runs"]

    plain = runs()
    assert plain[0]["eta"] == 0.5
    for knob in (("--eta", "0"), ("--beta", "1"), ("--window", "1"), ("--concurrency", "4"), ("--recurrences", "50")):
        assert runs(*knob) != plain, knob


def test_a_table_is_shown_to_people(traces: Path) -> None:
    said = toy(traces, "--policy", "paper,default", "--seeds", "2").stdout
    assert "mean of 2 seeds" in said
    assert [line.split()[:2] for line in said.splitlines() if "Toy" in line] == [
        ["Toy", "paper"],
        ["Toy", "default"],
    ]


def test_without_traces_virtual_workloads_are_used_and_it_says_so() -> None:
    ran = zeus("--workload", "bert-sa", "--policy", "paper,default", "--json", "--recurrences", "20")
    said = json.loads(ran.stdout)
    assert said["gpu"] == "virtual:v100"
    assert "virtual workloads" in ran.stderr
    paper, default = said["runs"]
    assert paper["last5_energy_ratio"] < default["last5_energy_ratio"]


def test_of_all_workloads_those_where_a_policy_has_no_meaning_are_left_out_and_it_says_so(traces: Path) -> None:
    never = TOML.replace("Toy", "Never").replace("max_epochs = 20", "max_epochs = 2")
    (traces / "workloads.toml").write_text(TOML + never)
    few = ("--recurrences", "2", "--json")
    ran = toy(traces, "--policy", "oracle,default", *few)
    ran_pairs = [(run["workload"], run["policy"]) for run in json.loads(ran.stdout)["runs"]]
    assert ran_pairs == [("Toy", "oracle"), ("Toy", "default"), ("Never", "default")]
    assert "skipped: Never on Foo9: no batch size reaches the target in every run" in ran.stderr
    assert "Never on Foo9" in toy(traces, "--workload", "Never,Toy", "--policy", "oracle", *few, status=2).stderr
    assert "pollux on Toy" in toy(traces, "--policy", "pollux", *few, status=2).stderr


@pytest.mark.parametrize(
    ("args", "help_given"),
    [
        (("--policy", "papr"), "Did you mean 'paper'"),
        (("--workload", "Neumf2"), "Did you mean 'NeuMF'"),
        (("--gpu", "virtual:b200"), "no virtual card is named 'b200'"),
        (("--beta", "0.5"), "beta"),
        (("--eta", "2"), "eta"),
        (("--policy", ","), "at least one name"),
        (("--traces", "nowhere"), "no such folder"),
    ],
)
def test_bad_input_is_refused_with_help(args: tuple[str, ...], help_given: str) -> None:
    assert help_given in zeus(*args, status=2).stderr


def test_traces_without_what_is_asked_for_say_what_is_there_and_what_to_add(traces: Path) -> None:
    with pytest.raises(InputError, match=r"no summary_power_v100.csv .* GPUs with a trace: Foo9"):
        published.load(traces, "v100")
    (traces / "workloads.toml").unlink()
    with pytest.raises(InputError, match=r'give --workloads FILE .*\n\["d/n/o"\]\ndataset = "d"') as caught:
        published.load(traces, "Foo9")
    added = str(caught.value).split("b0:")[1].replace("target = 0.5", "target = 0.7")
    assert list(published.load(traces, "Foo9", settings=workload_file.parse(added, "added"))) == ["d/n/o"]
    wrong = workload_file.parse(TOML.replace("0.7", "0.8"), "toml")
    with pytest.raises(InputError, match=r"at target 0.8; .* targets \[0.7\]"):
        published.load(traces, "Foo9", settings=wrong)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("target = 0.7", ""), r"line 1: target is missing in \[Toy\]: give a finite number"),
        (("max_epochs", "max_epoch"), "max_epoch is not known in .Toy.. Did you mean 'max_epochs'"),
        (("max_epochs = 20", "max_epochs = 0"), "line 6: max_epochs = 0: give a whole number of at least 1"),
        (('"n"', '""'), "network = '': give a name"),
        (("0.7", "nan"), "target = nan: give a finite number"),
        (("[", "["), None),
        (('["Toy"]', '["Toy"'), "not valid TOML"),
        ((TOML, ""), "no workload"),
        ((TOML, "Toy = 3"), "Toy = 3: give a table"),
    ],
)
def test_a_workloads_file_is_read_strictly(change: tuple[str, str], said: str | None) -> None:
    text = TOML.replace(*change)
    if said is None:
        assert workload_file.parse(text, "file")["Toy"].default == 64
        return
    with pytest.raises(InputError, match=said):
        workload_file.parse(text, "file")


def test_the_papers_workloads_have_stand_ins_on_every_card() -> None:
    for card in ("v100", "h100"):
        workloads = virtual.load(card)
        assert list(workloads) == list(workload_file.table_1())
        for workload in workloads.values():
            assert any(workload.always_converges(size) for size in workload.sizes)
    assert virtual.load("a40")["NeuMF"].runs == virtual.load("v100")["NeuMF"].runs
