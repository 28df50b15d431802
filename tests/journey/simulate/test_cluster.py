"""`zeus simulate cluster`, `capriccio` and `drift`: a fixed shape, what a source is, help where something is off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zeus.simulate.cluster.composite import DLRM, PHILLY

pytestmark = pytest.mark.usefixtures("warm")


def zeus(*args: str | Path, status: int = 0, data: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "ZEUS_DATA"}
    if data is not None:
        env["ZEUS_DATA"] = str(data)
    command = [sys.executable, "-m", "zeus.cli", "simulate", *map(str, args)]
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert ran.returncode == status, ran.stderr
    return ran


def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "groups.csv"
    lines = [f"{group},{i * 50},{i * 50 + 10 * (group + 1) ** 2}" for group in range(8) for i in range(12)]
    path.write_text("\n".join(["group,start_time,end_time", *lines, "7,1,"]) + "\n")
    return path


def tweets(tmp_path: Path) -> Path:
    path = tmp_path / "tweets.csv"
    words = {0: "rain awful pain", 4: "sun great joy"}
    lines = [
        f"{label},1,Mon Apr {day:02d} {hour:02d}:00:00 PDT 2009,NO_QUERY,me,{words[label]} w{day}{hour}{label}"
        for day in range(6, 12)
        for hour in range(24)
        for label in words
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_cluster_from_a_plain_table(tmp_path: Path) -> None:
    command = ("cluster", "--groups", jobs(tmp_path), "--gpu", "virtual:v100", "--policy", "paper,default", "--json")
    first = zeus(*command)
    said = json.loads(first.stdout)
    assert zeus(*command, "--workers", "2").stdout == first.stdout
    assert (said["gpu"], said["jobs"], said["groups"], said["dropped"]) == ("virtual:v100", 96, 8, 1)
    assert said["source"].endswith("groups.csv")
    runtimes = [one["mean_runtime"] for one in said["clusters"]]
    assert runtimes == sorted(runtimes)
    assert sum(one["jobs"] for one in said["clusters"]) == 96
    assert [run["policy"] for run in said["runs"]] == ["paper"] * 6 + ["default"] * 6
    assert all(run["energy"] > 0 and run["time_ratio"] > 0 and run["tries"] >= run["jobs"] for run in said["runs"])
    shown = zeus(*command[:-1]).stdout
    assert "96 jobs of 8 groups on virtual:v100. Left out: 1 that did not succeed." in shown


def test_without_a_table_a_composite_is_used_and_called_so(tmp_path: Path) -> None:
    for path in (DLRM, PHILLY):
        (tmp_path / path).parent.mkdir()
    lives = [f"{n},app{n % 3},{n},{n + 10 * (n % 3) + 5}" for n in range(12)]
    (tmp_path / DLRM).write_text("\n".join(["instance_sn,app_name,creation_time,deletion_time", *lives]))
    durations = [f"2017-10-09 07:01:{n:02d},{n * n + 1},{n % 4},1,v" for n in range(12)]
    (tmp_path / PHILLY).write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *durations]))
    options = ("--gpu", "virtual:v100", "--policy", "default", "--workload", "BERT-SA,NeuMF", "--json")
    said = json.loads(zeus("cluster", *options, data=tmp_path).stdout)
    assert said["source"].startswith("composite: ")
    assert "neither cluster as it was" in said["source"]
    assert said["jobs"] == 12


def test_bad_input_of_a_cluster_is_named_and_exits_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("group,start_time,end_time\na,1,2\nb,three,4\n")
    virtual = ("--gpu", "virtual:v100")
    assert "bad.csv, line 3: start_time is 'three'" in zeus("cluster", "--groups", path, *virtual, status=2).stderr
    path.write_text("group,start_time,end_time\na,1,2\n")
    assert "6 workloads" in zeus("cluster", "--groups", path, *virtual, status=2).stderr
    few = ("--workload", "NeuMF", "--policy")
    assert "Did you mean 'paper'?" in zeus("cluster", "--groups", path, *virtual, *few, "papre", status=2).stderr
    assert "changes the batch size during a run" in zeus(
        "cluster", "--groups", path, *virtual, *few, "pollux", status=2
    ).stderr  # fmt: skip
    assert "Write them after it" in zeus("--gpu", "a40", "cluster", "--groups", path, status=2).stderr


def test_capriccio_writes_slices_once(tmp_path: Path) -> None:
    source, out = tweets(tmp_path), tmp_path / "out"
    said = json.loads(zeus("capriccio", "--input", source, "--out", out, "--window", "144", "--json").stdout)
    assert (said["slices"], said["about"]) == (4, "windows of 144 of 288 tweets, a sample of Sentiment140's 1600000")
    assert len(list(out.glob("slice_*.csv"))) == 4
    later = (
        "capriccio",
        "--input",
        source,
        "--out",
        tmp_path / "later",
        "--window",
        "144",
        "--first-date",
        "2009-04-07",
    )
    said = json.loads(zeus(*later, "--json").stdout)
    assert (said["slices"], said["empty_dates"]) == (3, 0)
    assert said["about"].endswith(", from 2009-04-07 on")
    assert "the last whole window of 144 tweets begins on 2009-04-09" in zeus(
        *later[:-1], "2009-05-01", status=2
    ).stderr  # fmt: skip
    assert "Nothing was written" in zeus("capriccio", "--input", source, "--out", out, status=2).stderr


def test_drift_trains_on_each_slice(tmp_path: Path) -> None:
    command = ("drift", "--input", tweets(tmp_path), "--tweets", "144")
    said = json.loads(zeus(*command, "--json").stdout)
    assert (said["window"], said["gpu"], len(said["slices"])) == (10, "virtual v100", 4)
    first = said["slices"][0]
    assert (first["label"], first["batch_size"], first["converged"]) == ("2009-04-06", 128, True)
    fewer = json.loads(zeus(*command, "--first-date", "2009-04-08", "--json").stdout)
    assert [one["label"] for one in fewer["slices"]] == ["2009-04-08", "2009-04-09"]
    assert "A real text classifier, with the energy and time of BERT on a virtual v100" in zeus(*command).stdout
