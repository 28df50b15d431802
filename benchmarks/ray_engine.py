"""Measures what Ray adds to the replay of a cluster: 1.2 million jobs by a pool and by Ray, with a worker killed.

    python benchmarks/ray_engine.py [--jobs 1200000] [--groups 20000] [--workers 2] [--policy paper]

The trace is that of `benchmarks/cluster.py`. `zeus simulate cluster --json` replays it three times: with a pool of
processes, on a Ray that it starts itself, and on such a Ray of which a worker is killed by SIGKILL in the middle. The
output is the wall time and the CPU time of each, both relative to the pool, and the SHA-256 of what each printed. The
SHA-256 must be the same. The CPU time is that of all processes that the command starts, so Ray's own count too. It is
read twice a second, so up to half a second of each process is missing. Ray only listens on loopback.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cluster import generate
from harness import TRACES

LOOK_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    parent: int
    begun: int
    name: bytes
    cpu_seconds: float


@dataclass(frozen=True)
class Replayed:
    seconds: float
    cpu_seconds: float
    sha256: str
    killed: int  # workers


def replay(command: list[str], kill_after: float | None = None) -> Replayed:
    """Run the command. After some seconds, kill one of its Ray workers that run a task by then."""
    begun = time.perf_counter()
    used: dict[tuple[int, int], float] = {}
    killed = 0
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as told:
        running = subprocess.Popen(command, stdout=said, stderr=told)
        while running.poll() is None:
            below = descendants(running.pid)
            used |= {(pid, one.begun): one.cpu_seconds for pid, one in below.items()}
            busy = [pid for pid, one in below.items() if one.name.startswith(b"ray::_answer")]
            if kill_after is not None and time.perf_counter() - begun > kill_after and busy:
                os.kill(busy[0], signal.SIGKILL)
                kill_after, killed = None, 1
            time.sleep(LOOK_SECONDS)
        took = time.perf_counter() - begun
        said.seek(0)
        told.seek(0)
        if running.returncode != 0:
            sys.exit(told.read().decode())
        return Replayed(took, sum(used.values()), hashlib.sha256(said.read()).hexdigest(), killed)


def descendants(ancestor: int) -> dict[int, Process]:
    """The process and all below it."""
    every: dict[int, Process] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            name = (folder / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        cpu = (int(stat[11]) + int(stat[12])) / TICKS
        every[int(folder.name)] = Process(int(stat[1]), int(stat[19]), name, cpu)
    found = {}
    for pid, one in every.items():
        above = pid
        while above in every and above != ancestor:
            above = every[above].parent
        if above == ancestor:
            found[pid] = one
    return found


def tell(name: str, one: Replayed, pool: Replayed) -> None:
    wall = f"{one.seconds:7.1f} s ({one.seconds / pool.seconds:.2f} x pool)"
    cpu = f"CPU {one.cpu_seconds:7.1f} s ({one.cpu_seconds / pool.cpu_seconds:.2f} x pool)"
    load = f"load {os.getloadavg()[1]:.1f}"  # of the last five minutes: others may use the machine too
    print(f"{name:22} {wall}  {cpu}  {load}  sha256 {one.sha256}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=1_200_000)
    parser.add_argument("--groups", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--policy", default="paper")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zeus-ray-") as folder:
        table = Path(folder) / "groups.csv"
        generate(table, args.jobs, args.groups)
        zeus = [sys.executable, "-m", "zeus.cli", "simulate", "cluster", "--groups", str(table)]
        zeus += ["--traces", str(TRACES), "--policy", args.policy, "--workers", str(args.workers), "--json"]
        print(f"{args.jobs} jobs of {args.groups} groups, policy {args.policy}, {args.workers} workers", flush=True)
        pool = replay(zeus)
        tell("pool", pool, pool)
        ray = replay([*zeus, "--engine", "ray"])
        tell("ray", ray, pool)
        killed = replay([*zeus, "--engine", "ray"], kill_after=ray.seconds / 2)
        tell("ray, a worker killed", killed, pool)
    if len({pool.sha256, ray.sha256, killed.sha256}) > 1 or not killed.killed:
        sys.exit("the bytes differ, or no worker was killed")


if __name__ == "__main__":
    main()
