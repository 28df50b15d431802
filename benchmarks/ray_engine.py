"""Measures what Ray adds to the replay of a cluster: 1.2 million jobs by a pool and by Ray, with a worker killed.

    python benchmarks/ray_engine.py [--jobs 1200000] [--groups 20000] [--workers 2] [--policy paper]

The trace is that of `benchmarks/cluster.py`. `zeus simulate cluster --json` replays it three times: with a pool of
processes, on a Ray that it starts itself, and on such a Ray of which a worker is killed by SIGKILL in the middle. The
output is the wall time of each, relative to the pool, and the SHA-256 of what each printed. They must be the same.
Ray only listens on loopback.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster import TRACES, generate


@dataclass(frozen=True)
class Replayed:
    seconds: float
    sha256: str
    told: str


def replay(command: list[str], kill_after: float | None = None) -> Replayed:
    """Run the command. After some seconds, kill one of the Ray workers that it has started by then."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as told:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told)
        assert running.stdout is not None
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(next(ray_workers(running.pid)), signal.SIGKILL)
        said = running.stdout.read()
        if running.wait() != 0:
            told.seek(0)
            sys.exit(told.read().decode())
        took = time.perf_counter() - begun
        told.seek(0)
        return Replayed(took, hashlib.sha256(said).hexdigest(), told.read().decode().strip())


def ray_workers(ancestor: int) -> Iterator[int]:
    """Workers of Ray below this process that run a task now."""
    parents: dict[int, tuple[int, bytes]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
            parents[int(folder.name)] = (parent, (folder / "cmdline").read_bytes())
        except OSError:
            continue
    for pid, (_, name) in parents.items():
        above = pid
        while above in parents and above != ancestor:
            above = parents[above][0]
        if above == ancestor and name.startswith(b"ray::"):
            yield pid


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
        print(f"{args.jobs} jobs of {args.groups} groups, policy {args.policy}, {args.workers} workers")
        pool = replay(zeus)
        ray = replay([*zeus, "--engine", "ray"])
        killed = replay([*zeus, "--engine", "ray"], kill_after=ray.seconds / 2)
    for name, one in {"pool": pool, "ray": ray, "ray, a worker killed": killed}.items():
        print(f"{name:22} {one.seconds:7.1f} s  {one.seconds / pool.seconds:5.2f} x pool  sha256 {one.sha256}")
    print(killed.told)
    if len({pool.sha256, ray.sha256, killed.sha256}) > 1 or "a worker was lost" not in killed.told:
        sys.exit("the bytes differ, or no worker was lost")


if __name__ == "__main__":
    main()
