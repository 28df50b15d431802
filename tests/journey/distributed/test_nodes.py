"""Two nodes with two ranks each, under real torchrun: one limit on all cards, restored when the cable is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.two_nodes import TwoNodes, two_nodes, why_not
from support.waiting import PATIENCE_SECONDS, eventually

pytest.importorskip("torch.distributed", reason="needs `pip install torch`")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    if obstacle := why_not():
        pytest.skip(obstacle)
    with two_nodes(tmp_path) as nodes:
        yield nodes


@pytest.mark.peers
def test_all_cards_of_both_nodes_run_at_one_limit_and_their_energy_counts_once(nodes: TwoNodes) -> None:
    nodes.start("fsdp", EPOCHS="3")
    assert nodes.wait(PATIENCE_SECONDS) and not any(agent.returncode for agent in nodes.agents), nodes.log()
    told = [nodes.told(rank) for rank in range(4)]
    limits = [limit for one in told for limit in one["limits"]]
    assert len(limits) == 4 and len({*limits}) == 1
    assert {one["joules"] for one in told} == {told[0]["joules"]}
    assert told[0]["joules"] == pytest.approx(sum(one["counters"] for one in told), rel=0.1)  # counted twice: 2
    assert {round(one["max_watts"]) for one in told} == {1000}
    assert all(node.is_restored for node in nodes.nodes)
    assert not any("Training goes on" in line for rank in range(4) for line in nodes.said(rank))


@pytest.mark.peers
def test_a_cut_between_the_nodes_has_each_restore_its_limits_although_the_training_hangs(nodes: TwoNodes) -> None:
    nodes.start("ddp", EPOCHS="1000", ZEUS_RANK_PATIENCE="4")
    eventually(lambda: nodes.are_lowered and nodes.epochs(0) >= 4, nodes.log)
    nodes.cut()
    eventually(lambda: all(node.is_restored for node in nodes.nodes), nodes.log)
    eventually(lambda: all(nodes.said(rank) for rank in range(4)), nodes.log)
    near, _, far, _ = (nodes.said(rank)[0] for rank in range(4))
    assert "not answered for 4 s. This rank restored the power limits of its GPUs" in near
    assert "rank 2: this rank has not reached the others for 4 s. This rank restored the power limits" in far
    assert all(agent.poll() is None for agent in nodes.agents)  # nothing ended them but this test
