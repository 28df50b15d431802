"""Trains on two nodes of two ranks each, and shows what becomes of the power limits when something goes wrong.

    python benchmarks/nodes.py [--only NAME ...] [--patience 30] [--stop 60]

The nodes are network namespaces on this machine, joined by a cable. Each has its own host name, two virtual V100 in
real time, and its own keeper. torchrun starts two ranks on each, which train with gloo. Needs root, and the commands ip
and unshare. All of it takes about 15 minutes. The exit code is 1 if a limit did not come back, if limits differ, or if
the energy is not that of the cards.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.two_nodes import TwoNodes, two_nodes, why_not

READY_SECONDS = 300.0  # for the ranks to start and to profile
LONGEST_SECONDS = 180.0  # from a fault until limits are back
RANKS = range(4)
MANY = "1000"  # epochs: more than the fault takes


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def print_lines(nodes: TwoNodes) -> None:
    for rank in RANKS:
        for line in nodes.said(rank) or ["(says nothing)"]:
            print(f"  rank {rank}: {line}")


def trained(nodes: TwoNodes, kind: str, **env: str) -> bool:
    """Train to the end, and compare what the ranks say with the cards."""
    nodes.start(kind, EPOCHS="6", **env)
    if not nodes.wait(READY_SECONDS) or any(agent.returncode for agent in nodes.agents):
        print(nodes.log())
        return False
    told = [nodes.told(rank) for rank in RANKS]
    limits = [limit for one in told for limit in one["limits"]]
    counters, joules = sum(one["counters"] for one in told), {one["joules"] for one in told}
    print(f"  limits of the four cards: {limits} W; MAXPOWER {told[0]['max_watts']:g} W")
    print(f"  energy of the training, as each rank says: {', '.join(f'{one:.0f} J' for one in sorted(joules))}")
    print(f"  the cards' own counters over the same epochs, summed once: {counters:.0f} J")
    for one in told:
        waited = (
            f"waited {one['waited']:.1f} s of {one['seconds']:.1f} s for slower ranks, cost {one['waited_cost']:.0f} J"
        )
        print(f"  rank {one['rank']}: {waited}")
    print_lines(nodes)
    # What GPUs use while they wait for the slowest rank after the last epoch is not counted.
    once = len(joules) == 1 and ("SLOW" in env or abs(joules.pop() - counters) < 0.02 * counters)
    return len(set(limits)) == 1 and once and all(node.is_restored for node in nodes.nodes)


def faulty(
    nodes: TwoNodes,
    patience: float,
    fault: Callable[[], None],
    mend: Callable[[], None] | None = None,
    after: float = 0,
) -> bool:
    """Break something once all cards run at a lowered limit, and see when the old limits are back."""
    nodes.start("ddp", EPOCHS=MANY, ZEUS_RANK_PATIENCE=f"{patience:g}")
    if not wait_until(lambda: nodes.are_lowered and nodes.epochs(0) >= 4, READY_SECONDS):
        print(nodes.log())
        return False
    print(f"  limits before: {[node.limits for node in nodes.nodes]} W", flush=True)
    time.sleep(0.7)  # into the steps of an epoch, where ranks wait for each other in the training itself
    fault()
    begin = time.monotonic()
    back: dict[int, float] = {}
    mended, epochs, seconds = mend is None, nodes.epochs(0), 0.0
    while seconds < LONGEST_SECONDS and not (mended and len(back) == 2 and seconds > max(after, *back.values()) + 5):
        seconds = time.monotonic() - begin
        for node in nodes.nodes:
            if node.is_restored:
                back.setdefault(node.number, seconds)
            else:  # an evaluation may run at the highest limit, which is the one found
                back.pop(node.number, None)
        if not mended and mend is not None and seconds >= after:
            mend()
            mended = True
        time.sleep(0.02)
    for node in nodes.nodes:
        when = f"{back[node.number]:.1f} s" if node.number in back else "never"
        print(f"  node {node.number}: limits back after {when}: {node.limits} W")
    print_lines(nodes)
    if mend is not None:
        went_on = wait_until(lambda: nodes.epochs(0) > epochs + 1, 60)
        print(f"  the training went on afterwards: {'yes' if went_on else 'no'}")
    ended = [agent.poll() for agent in nodes.agents]
    codes = ", ".join("still runs" if code is None else f"ended with {code}" for code in ended)
    print(f"  torchrun on the two nodes: {codes}")
    return len(back) == 2


def signalled(nodes: TwoNodes, which: signal.Signals, rank: int) -> Callable[[], None]:
    return lambda: os.kill(nodes.pid(rank), which)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of the cases, as printed")
    parser.add_argument("--patience", type=float, default=30.0, help="ZEUS_RANK_PATIENCE")
    parser.add_argument("--stop", type=float, default=60.0, help="seconds for which ranks are stopped")
    arguments = parser.parse_args()
    if obstacle := why_not():
        print(obstacle)
        return 1
    kill, cont = signal.SIGKILL, signal.SIGCONT
    patience, stopped = arguments.patience, arguments.stop
    cases: dict[str, tuple[str, Callable[[TwoNodes], bool]]] = {
        "ddp": ("healthy, DDP", lambda nodes: trained(nodes, "ddp")),
        "fsdp": ("healthy, FSDP", lambda nodes: trained(nodes, "fsdp")),
        "slow-epoch": ("rank 3 is 2 s longer busy after each epoch", lambda nodes: trained(nodes, "ddp", SLOW="epoch")),
        "slow-step": ("rank 3 needs 50 ms longer for each step", lambda nodes: trained(nodes, "ddp", SLOW="step")),
        "killed": ("rank 3 is killed", lambda nodes: faulty(nodes, patience, signalled(nodes, kill, 3))),
        "stopped": (
            f"rank 3 is stopped for {stopped:g} s",
            lambda nodes: faulty(nodes, patience, lambda: nodes.stop(3), signalled(nodes, cont, 3), stopped),
        ),
        "setter-stopped": (
            f"rank 2, which sets the limits of node 1, is stopped for {stopped:g} s",
            lambda nodes: faulty(nodes, patience, lambda: nodes.stop(2), signalled(nodes, cont, 2), stopped),
        ),
        "partition": ("the cable is pulled", lambda nodes: faulty(nodes, patience, nodes.cut)),
    }
    failed = []
    for name, (title, run) in cases.items():
        if arguments.only and name not in arguments.only:
            continue
        print(f"{name}: {title}", flush=True)
        with tempfile.TemporaryDirectory(prefix="zeus-nodes-") as folder, two_nodes(Path(folder)) as nodes:
            if not run(nodes):
                failed.append(name)
        print(flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
