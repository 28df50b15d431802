"""The limits that an optimizer may try."""

from support.nvml.fake import FakeNvml
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer


def test_the_limits_found_are_read_once_whatever_limits_are_wanted(fake_nvml: FakeNvml) -> None:
    card = fake_nvml.cards[0]
    monitor = ZeusMonitor()
    reads = []
    for wanted in ((), (600, 500)):
        before = card.reads("limits")
        optimizer = GlobalPowerLimitOptimizer(monitor, power_limits=wanted)
        assert optimizer.found_limit == 700
        reads.append(card.reads("limits") - before)
    assert reads[0] == reads[1]
    monitor.close()
