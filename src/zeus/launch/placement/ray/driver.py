"""The driver of a Ray job: keeps one `zeus run` going on a node with enough GPUs, and prints what it prints.

A program: `python -m zeus.launch.placement.ray.driver OPTIONS -- COMMAND`. Its exit code is that of the run.

    waiting for GPUs ──▶ running ──▶ ended: exit with its status
          ▲                 │
          └── worker lost ──┘         SIGTERM (`ray job stop`): ask the run to end, and wait for it
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import ray
from ray import exceptions

from zeus.errors import LaunchError
from zeus.exit_codes import FAILED
from zeus.launch.placement.ray.node_run import Look, NodeRun
from zeus.launch.placement.ray.variables_file import take
from zeus.launch.process.guard import shell_status

OUT = sys.stdout
LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 10.0  # Ray usually starts an actor sooner, if there are free GPUs


def main(arguments: Sequence[str]) -> int:
    """Run the command on a node. Returns its exit status."""
    parser = argparse.ArgumentParser()
    for name in ("name", "folder", "run-id", "variables"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--gpus", type=float, required=True)
    parser.add_argument("--cpus", type=float, required=True)
    parser.add_argument("--resources", type=json.loads, default={})
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    try:
        variables = take(Path(given.variables))
    except LaunchError as failed:
        _say(str(failed))
        return FAILED
    ray.init(log_to_driver=False, logging_level=logging.ERROR)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 pages that Ray prints when a worker or a node is lost
    stop = _StopRequest()  # after `ray.init`, which has a handler of its own
    wanted = {"GPU": given.gpus, "CPU": given.cpus, **given.resources}
    actor = (
        ray.remote(NodeRun)
        .options(
            name=given.run_id,
            num_gpus=given.gpus,
            num_cpus=given.cpus,
            resources=given.resources,
            max_restarts=-1,
        )
        .remote(given.command, given.folder, given.run_id, variables)
    )
    return _follow(actor, wanted, stop)


class _StopRequest:
    """The signal by which `ray job stop` asked this job to end, or 0."""

    def __init__(self) -> None:
        self.signal = 0
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number


def _follow(actor: Any, wanted: Mapping[str, float], stop: _StopRequest) -> int:
    """Print what the run prints until it has ended. Returns its exit status."""
    start, offset, asked = "", 0, ""
    waiting = _Waiting(wanted)
    pending = actor.look.remote(offset)
    while True:
        if stop.signal and not start:  # nothing is running
            return shell_status(-stop.signal)
        if stop.signal and asked != start:
            asked = start
            actor.stop.remote()
        if not ray.wait([pending], timeout=LOOK_SECONDS)[0]:
            waiting.tell()
            continue
        try:
            seen: Look = ray.get(pending)
        except exceptions.ActorUnavailableError:
            if start:
                start, offset = "", 0
                _say("the worker of the run, or its node, was lost. Ray starts the run again; it goes on where it was.")
            waiting.tell()
            time.sleep(LOOK_SECONDS)
            pending = actor.look.remote(offset)
            continue
        except exceptions.RayError as failed:
            _say(f"Ray cannot run it: {failed}")
            return FAILED
        waiting = _Waiting(wanted)
        if seen.start != start:
            start = seen.start
            if offset:  # of the last start
                offset, pending = 0, actor.look.remote(0)
                continue
        OUT.buffer.write(seen.output)
        OUT.flush()
        offset += len(seen.output)
        if seen.status is not None:
            return seen.status
        time.sleep(LOOK_SECONDS)
        pending = actor.look.remote(offset)


class _Waiting:
    """Says once why a run has not begun, and again if the reason is another."""

    def __init__(self, wanted: Mapping[str, float]) -> None:
        self._wanted = {name: amount for name, amount in wanted.items() if amount}
        self._until = time.monotonic() + PATIENCE_SECONDS
        self._told = ""

    def tell(self) -> None:
        """Say it, once that has taken long enough."""
        if time.monotonic() < self._until:
            return
        nodes = [one["Resources"] for one in ray.nodes() if one["Alive"]]
        reason = waiting_for(self._wanted, nodes)
        if reason != self._told:
            self._told = reason
            _say(reason)


def waiting_for(wanted: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> str:
    """Why a run that wants these resources on one node has not begun.

    >>> waiting_for({"GPU": 2}, [{"GPU": 1, "CPU": 8}, {"GPU": 1}])
    'no node of the Ray cluster has 2 GPU. The run waits until such a node joins.'
    >>> waiting_for({"GPU": 1, "CPU": 4}, [{"GPU": 1, "CPU": 4}])
    'the run waits until 1 GPU and 4 CPU are free on one node.'
    """
    named = " and ".join(f"{amount:g} {name}" for name, amount in wanted.items())
    if any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        return f"the run waits until {named} are free on one node."
    return f"no node of the Ray cluster has {named}. The run waits until such a node joins."


def _say(text: str) -> None:
    OUT.write(f"zeus: {text}\n")
    OUT.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
