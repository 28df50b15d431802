"""Ten recurrences on a real Slurm of two nodes, with all that can happen to a batch job; then a job on both nodes.

    python benchmarks/slurm.py [--check]

The nodes are two `slurmd` on this machine, each with two virtual V100. The store is a `zeus serve` on loopback. An
array of ten tasks runs, two at a time, under `zeus run --on slurm --watch`. Meanwhile

    task 3   a job of a partition with higher priority preempts it, and Slurm requeues it
    task 5   is cancelled (`scancel`)
    task 7   loses its node: slurmd and all that Slurm started there is killed. Slurm finds out and requeues it
    task 9   loses only the slurmd of its node. Slurm gives the node up and requeues the task, while its first start
             goes on. Both train at the same time

The training script reads the counters of its own cards after each step. What it read is compared with what each trial
is charged in the store. Then a job on both nodes is run with `srun` and torchrun, two ranks on each.

Everything runs in a network and with a /etc/hosts of its own. It needs root, slurm-wlm, munge and torch, and takes
about five minutes. With --check the exit code is 1 if something is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import head, row
from support.served import Served
from support.slurm import NODES, SlurmCluster, SlurmPlace
from support.waiting import eventually
from zeus.device.virtual import presets
from zeus.launch.placement.placement import Task

Json = dict[str, Any]
SCRIPTS = Path(__file__).parent / "slurm_scripts"
SPEED = 10
CARD = f"virtual:v100x2?speed={SPEED}&watched=idle"
TASKS = range(1, 11)
PREEMPTED, CANCELLED, NODE_LOST, SLURMD_LOST = 3, 5, 7, 9
REQUEUED = (PREEMPTED, NODE_LOST, SLURMD_LOST)
FOUND = 250.0  # watts, of every card before the first job
NEAR = 0.02  # of a trial's energy
ENDING_SECONDS = 1.0  # a process that is ended takes up to that long, and is charged for its idle cards
ALONE = "ZEUS_BENCHMARK_ALONE"  # set in the network of our own
# With no address but 127.0.0.1, the C library finds no name at all for Slurm.
ENTER = 'ip link set lo up && ip addr add 127.0.0.2/8 dev lo && mount --bind "$0" /etc/hosts && exec "$@"'

LINES = """
name = "lines"
command = "{python} train_lines.py {batch_size} used"
batch_sizes = [32, 64, 128]
default_batch_size = 64
target_metric = 0.9
max_epochs = 12
policy = "paper"
beta = 1000.0
mab_seed = 0
[metrics]
regex = 'accuracy=(\\S+)'
epoch_regex = 'epoch (\\d+) begins'
epoch_line = "begin"
[slurm]
array = "1-10%2"
gres = "gpu:2"
"""
RANKS = """
name = "ranks"
command = \"\"\"srun sh -c 'torchrun --nnodes $SLURM_NNODES --nproc-per-node 2 --node-rank $SLURM_NODEID \\
  --master-addr $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1) --master-port 29500 \
  train_ranks.py used'\"\"\"
batch_sizes = [256]
default_batch_size = 256
target_metric = 0.9
max_epochs = 12
eta = 1.0
mab_seed = 0
[slurm]
nodes = 2
gres = "gpu:2"
"""


@dataclass
class Seen:
    """What this benchmark saw, and what was wrong with it."""

    trials: list[Json] = field(default_factory=list)
    tasks: list[Json] = field(default_factory=list)
    ranks: list[Json] = field(default_factory=list)
    two_nodes: Json = field(default_factory=dict)
    cancelled_on_two_nodes: Json = field(default_factory=dict)
    limits: dict[str, list[float]] = field(default_factory=dict)
    charged_joules: float = 0.0
    counted_joules: float = 0.0
    cards_joules: float = 0.0
    watch_exit_code: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)


# ---------------------------------------------------------------------------------------------------- the array


class Story:
    """Submits the array, and lets things happen to its tasks."""

    def __init__(self, slurm: SlurmCluster, place: SlurmPlace) -> None:
        self.slurm, self.place = slurm, place
        self.used = place.folder / "used"
        (self.used / f"hold-{SLURMD_LOST}").touch()
        self.watcher = place.start("--on", "slurm", "--watch", "--json")
        assert self.watcher.stderr is not None
        found = re.search(r"Submitted Slurm job (\d+)", self.watcher.stderr.readline())
        assert found is not None
        self.job = found[1]

    def run(self) -> tuple[list[Task], int]:
        """All tasks after their end, and the exit code of the watcher."""
        node = self.training(PREEMPTED)
        self.note(f"task {PREEMPTED} is preempted on {node}")
        urgent = ("--partition=high", f"--nodelist={node}", "--gres=gpu:2", "--wrap=sleep 2")
        self.slurm.call("sbatch", "--parsable", *urgent)
        self.requeued(PREEMPTED)
        node = self.training(CANCELLED)
        self.note(f"task {CANCELLED} is cancelled on {node}")
        self.slurm.call("scancel", f"{self.job}_{CANCELLED}")
        node = self.training(NODE_LOST)
        self.note(f"task {NODE_LOST} loses its node {node}")
        self.slurm.kill_node(node)
        self.requeued(NODE_LOST)
        self.note(f"Slurm has found out; {node} comes back")
        self.slurm.start_node(node)
        node = self.training(SLURMD_LOST)
        self.note(f"task {SLURMD_LOST} loses the slurmd of {node}")
        self.slurm.kill_slurmd(node)
        self.requeued(SLURMD_LOST)
        eventually(lambda: any(row["start"] == 1 for row in self.records(SLURMD_LOST)), self.slurm.told)
        self.note("Both starts of it train; now they may go on")
        (self.used / f"hold-{SLURMD_LOST}").unlink()
        out, _ = self.watcher.communicate(timeout=300)
        tasks = self.slurm.tasks(self.job)
        self.slurm.start_node(node)
        eventually(lambda: all(self.slurm.state_of(one) == "IDLE" for one in NODES), self.slurm.told)
        told = [one["id"] for one in json.loads(out)["jobs"]]
        assert told == [one.id for one in tasks], (told, tasks)
        return tasks, self.watcher.returncode

    def training(self, task: int) -> str:
        """The node of a task, once it is in its third epoch."""
        third = 2 if (self.used / f"hold-{task}").exists() else 3  # a script that is held has not written of it yet
        eventually(lambda: any(row["epoch"] >= third for row in self.records(task)), self.slurm.told)
        return str(self.records(task)[-1]["node"])

    def requeued(self, task: int) -> None:
        """Wait until Slurm has requeued a task, and spare it the two minutes that Slurm lets it wait."""
        name = f"{self.job}_{task}"
        eventually(lambda: any(one.id == name and one.restarts for one in self.slurm.tasks(self.job)), self.slurm.told)
        self.slurm.hurry(name)

    def records(self, task: int) -> list[Json]:
        """What the scripts of a task have written."""
        return [row for rows in records(self.used).values() for row in rows if row["task"] == task]

    def note(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def idle_joules(seconds: float) -> float:
    """What the cards of a node use in this time when nothing runs on them."""
    return SPEED * 2 * presets.card("v100").idle_watts * seconds


def records(folder: Path) -> dict[int, list[Json]]:
    """What the script of each trial has written, by the trial's number."""
    found = {}
    for file in folder.glob("*.jsonl"):
        whole = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
        found[int(file.stem)] = [json.loads(line) for line in whole]
    return found


def look_at_array(seen: Seen, place: SlurmPlace, tasks: list[Task]) -> None:
    """Compare the store with what the scripts counted, and with what Slurm says."""
    full = json.loads(place.jobs("show", "lines", "--json"))
    counted = records(place.folder / "used")
    tries = full["tries"]
    seen.check({one["number"] for one in tries} == set(counted), "the store has other trials than were run")
    for one in tries:
        rows = counted.get(one["number"], [])
        if not rows:
            continue
        used, task = rows[-1]["joules"], rows[-1]["task"]
        seen.trials.append(
            {
                "task": task, "start": rows[-1]["start"] + 1, "node": rows[-1]["node"],
                "recurrence": one["recurrence"], "attempt": one["attempt"], "batch_size": one["batch_size"],
                "ending": one["ending"], "epochs": one["epochs"],
                "charged_joules": one["joules"], "counted_joules": used,
            }
        )  # fmt: skip
        seen.check(one["joules"] is not None, f"trial {one['number']} of task {task}: its energy is not known")
        seen.check(len({row["task"] for row in rows}) == 1, f"trial {one['number']} was run by several tasks")
        if one["joules"] is not None:
            most = used * (1 + NEAR) + (idle_joules(ENDING_SECONDS) if one["ending"] == "lost" else 0.0)
            seen.check(one["joules"] <= most, f"trial {one['number']}: charged more than it used")
            if one["ending"] != "lost":
                seen.check(one["joules"] >= used * (1 - NEAR), f"trial {one['number']}: charged less than it used")
    seen.charged_joules = sum(one["joules"] or 0.0 for one in tries)
    seen.counted_joules = sum(rows[-1]["joules"] for rows in counted.values())
    ends = {row["number"]: row for row in full["history"]}
    seen.check(len(ends) == len(TASKS), f"{len(ends)} recurrences in place of {len(TASKS)}")
    by_task = {one["task"]: one["recurrence"] for one in seen.trials}
    seen.check(len({*by_task.values()}) == len(TASKS), "two tasks share a recurrence")
    for task in tasks:
        number = int(task.id.partition("_")[2])
        row = ends[by_task[number]]
        joules = float(task.comment.split()[1]) if task.comment else None
        seen.tasks.append(
            {"task": number, "state": task.state, "restarts": task.restarts, "recurrence": row["number"],
             "end": row["end"], "joules": row["joules"], "comment": task.comment}
        )  # fmt: skip
        expected = ("CANCELLED", 0) if number == CANCELLED else ("COMPLETED", int(number in REQUEUED))
        seen.check((task.state, task.restarts) == expected, f"task {number}: {task.state}, {task.restarts} restarts")
        seen.check((row["end"] == "converged") == (number != CANCELLED), f"task {number}: {row['end']}")
        if number == CANCELLED:  # Slurm lets nobody change the comment of a job that has ended
            seen.check(not task.comment, f"task {number}: {task.comment}")
        elif number == SLURMD_LOST:  # the start that goes on ends after Slurm has closed the job
            seen.check(joules is not None and joules <= row["joules"], f"task {number}: {task.comment}")
        else:
            same = joules is not None and abs(joules - row["joules"]) < 0.06
            seen.check(same, f"task {number}: the comment says {task.comment!r}, the store {row['joules']} J")


# ---------------------------------------------------------------------------------------------------- two nodes


def look_at_nodes(seen: Seen, place: SlurmPlace) -> None:
    """Run the job on two nodes, and compare what its ranks saw."""
    shutil.copy(place.folder / "ranks.toml", place.folder / "job.toml")
    report = place.report("--on", "slurm", "--watch")
    full = json.loads(place.jobs("show", "ranks", "--json"))
    (trial,) = full["tries"]
    found = sorted((place.folder / "used").glob("rank-*.json"))
    seen.ranks = sorted((json.loads(file.read_text()) for file in found), key=lambda one: int(one["rank"]))
    used = sum(one["joules"] for one in seen.ranks)
    ends = {limit for one in seen.ranks for cards in one["limits"][-2:] for limit in cards}  # once profiling is over
    seen.two_nodes = {
        "state": report["jobs"][0]["state"], "nodes": report["jobs"][0]["nodes"], "ending": trial["ending"],
        "gpus": trial["gpus"], "max_watts": full["max_watts"], "limits_at_the_end": sorted(ends),
        "charged_joules": trial["joules"], "counted_joules": used, "comment": report["jobs"][0]["comment"],
    }  # fmt: skip
    seen.check(trial["ending"] == "converged", f"two nodes: {trial['ending']}")
    seen.check([one["node"] for one in seen.ranks] == ["n1", "n1", "n2", "n2"], "two nodes: ranks are missing")
    seen.check((trial["gpus"], full["max_watts"]) == (4, 1000.0), "two nodes: not all GPUs count for the cost")
    seen.check(len(ends) == 1 and max(ends) < FOUND, "two nodes: the limits of the cards differ")
    seen.check(abs(trial["joules"] - used) <= NEAR * used, "two nodes: the energy is not that of the four cards")


def cancel_nodes(seen: Seen, place: SlurmPlace) -> None:
    """Run the job on two nodes once more, and cancel it at a lowered limit."""
    slurm = place.cluster
    job = place.report("--on", "slurm")["jobs"][0]["id"]
    eventually(lambda: all(max(slurm.limits(node)) < FOUND for node in NODES), slurm.told)
    slurm.call("scancel", job)
    slurm.until(job, "CANCELLED")
    eventually(lambda: all(slurm.state_of(node) == "IDLE" for node in NODES), slurm.told)
    trial = json.loads(place.jobs("show", "ranks", "--json"))["tries"][-1]
    seen.cancelled_on_two_nodes = {"ending": trial["ending"], "charged_joules": trial["joules"]}
    seen.check(trial["ending"] == "lost", f"two nodes, cancelled: {trial['ending']}")
    limits = {watts for node in NODES for watts in slurm.limits(node)}
    seen.check(limits == {FOUND}, f"two nodes, cancelled: limits {limits}")


# ---------------------------------------------------------------------------------------------------- all of it


def run(folder: Path) -> Seen:
    seen, began = Seen(), time.monotonic()
    (folder / "used").mkdir()
    (folder / "ranks.toml").write_text(RANKS)
    (folder / "job.toml").write_text(LINES)
    for script in SCRIPTS.glob("*.py"):
        shutil.copy(script, folder)
    served = Served(folder)
    try:
        with SlurmCluster.start(card=CARD) as slurm:
            place = SlurmPlace(folder, slurm, served.up().url)
            tasks, seen.watch_exit_code = Story(slurm, place).run()
            seen.check(seen.watch_exit_code == 143, f"the watcher ended with {seen.watch_exit_code}")
            look_at_array(seen, place, tasks)
            seen.cards_joules = slurm.joules()
            seen.check(seen.charged_joules <= seen.cards_joules, "more was charged than all cards have used")
            look_at_nodes(seen, place)
            cancel_nodes(seen, place)
            seen.limits = {node: slurm.limits(node) for node in NODES}
            seen.check({watts for two in seen.limits.values() for watts in two} == {FOUND}, "a limit was not restored")
    finally:
        served.close()
    seen.seconds = time.monotonic() - began
    return seen


def show(seen: Seen) -> None:
    counted = ("charged, J", "counted by its cards, J")
    print(head("task", "start", "node", "recurrence", "try", "batch size", "ending", *counted))
    for one in sorted(seen.trials, key=lambda one: (one["task"], one["start"], one["attempt"])):
        cells = [one[name] for name in ("task", "start", "node", "recurrence", "attempt", "batch_size", "ending")]
        charged = "unknown" if one["charged_joules"] is None else f"{one['charged_joules']:.0f}"
        print(row(*cells, charged, f"{one['counted_joules']:.0f}"))
    print(f"\nSum: {seen.charged_joules:.0f} J charged, {seen.counted_joules:.0f} J counted by the scripts' cards.")
    print(f"All cards since the start, idle or not: {seen.cards_joules:.0f} J.\n")
    for task in seen.tasks:
        print(f"task {task['task']}: {task['state']}, restarts {task['restarts']}, {task['end']}; {task['comment']}")
    print(f"\nTwo nodes: {json.dumps(seen.two_nodes)}")
    print(f"Two nodes, cancelled: {json.dumps(seen.cancelled_on_two_nodes)}")
    print(f"Limits at the end: {seen.limits}. The watcher's exit code: {seen.watch_exit_code}. {seen.seconds:.0f} s.")
    print("\n".join(f"WRONG: {what}" for what in seen.wrong) or "Nothing is wrong.")


def enter(folder: Path) -> int:
    """Start this again in a network of its own, where torchrun can listen on loopback only. Returns its exit code."""
    name = socket.gethostname()
    (folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(NODES)} {name} {name.partition('.')[0]}\n")
    command = ["unshare", "--net", "--mount", "sh", "-c", ENTER, str(folder / "hosts"), sys.executable, *sys.argv]
    return subprocess.run(command, env={**os.environ, ALONE: "1"}, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="exit with 1 if something is wrong")
    given = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("it starts the daemons of Slurm, so it must be run as root")
    with tempfile.TemporaryDirectory(prefix="zeus-on-slurm-") as name:
        if not os.environ.get(ALONE):
            return enter(Path(name))
        try:
            seen = run(Path(name))
        except LookupError as missing:
            parser.error(str(missing))
    show(seen)
    return int(given.check and bool(seen.wrong))


if __name__ == "__main__":
    sys.exit(main())
