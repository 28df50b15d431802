"""All CPU counters of a node together: what failed is unknown, never less."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from zeus.device.clock import VirtualClock
from zeus.device.cpu import Domain, cpu_packages
from zeus.device.cpu_counters import CpuCounters, counters_of
from zeus.device.virtual import VirtualMachine
from zeus.device.virtual.host import virtual_cpus
from zeus.device.virtual.machine import parse
from zeus.errors import InputError

PERIOD_UJ = 262_143_328_850


class Powercap:
    """Files of two CPU packages with DRAM, held in memory. A file in `broken` cannot be read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.broken: set[str] = set()
        for socket in (0, 1):
            self._zone(root / f"intel-rapl:{socket}", f"package-{socket}")
            self._zone(root / f"intel-rapl:{socket}" / f"intel-rapl:{socket}:0", "dram")

    def _zone(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True)
        for file, content in (("name", name), ("energy_uj", 0), ("max_energy_range_uj", PERIOD_UJ)):
            (folder / file).write_text(f"{content}\n")

    def read(self, path: Path) -> str:
        if path.name == "energy_uj" and path.parent.name in self.broken:
            raise OSError(5, "Input/output error", str(path))
        return path.read_text()

    def spend(self, zone: str, joules: int) -> None:
        [counter] = self.root.glob(f"**/{zone}/energy_uj")
        counter.write_text(str(int(counter.read_text()) + joules * 10**6))


@pytest.fixture
def files(tmp_path: Path) -> Powercap:
    return Powercap(tmp_path / "powercap")


def test_each_package_and_its_memory_are_read(files: Powercap) -> None:
    counters = CpuCounters(cpu_packages(files.root, files.read))
    begin = counters.read(0.0)
    files.spend("intel-rapl:0", 70)
    files.spend("intel-rapl:1:0", 8)
    assert counters.between(begin, counters.read(1.0)) == ({0: 70.0, 1: 0.0}, {0: 0.0, 1: 8.0})
    assert counters.why_not == ""


@pytest.mark.parametrize("zone", ["intel-rapl:0", "intel-rapl:1:0"])
@pytest.mark.parametrize("fails", ["begin", "end"])
def test_a_counter_that_fails_at_either_end_leaves_its_energy_unknown(files: Powercap, zone: str, fails: str) -> None:
    counters = CpuCounters(cpu_packages(files.root, files.read))
    files.broken = {zone} if fails == "begin" else set()
    begin = counters.read(0.0)
    files.spend("intel-rapl:0", 70)
    files.broken = {zone} if fails == "end" else set()
    cpu, dram = counters.between(begin, counters.read(1.0))
    of_zone = cpu[0] if zone == "intel-rapl:0" else dram[1]
    assert math.isnan(of_zone)
    assert [*cpu, *dram] == [0, 1, 0, 1], "a failed counter must not drop out"
    assert sum(map(math.isnan, [*cpu.values(), *dram.values()])) == 1, "the others are still known"


def test_a_counter_that_nobody_could_read_for_longer_than_a_wrap_takes_is_unknown() -> None:
    shown, clock = iter([10_000_000, 20_000_000, 30_000_000]), iter([0.0, 100.0, 1000.0])

    def read(path: Path) -> str:
        return str(PERIOD_UJ if path.name == "max_energy_range_uj" else next(shown))

    domain = Domain(Path("zone"), read, lambda: next(clock))
    first, second, third = (domain.reading() for _ in range(3))
    assert (first.breaks, second.breaks, third.breaks) == (0, 0, 1), "524 s are enough for a wrap at 500 W"


def test_a_reset_in_between_leaves_the_energy_unknown_but_the_next_stretch_known() -> None:
    shown, clock = iter([200_000_000_000, 1_000_000, 3_000_000]), iter([100.0, 101.0, 102.0])

    def read(path: Path) -> str:
        return str(PERIOD_UJ if path.name == "max_energy_range_uj" else next(shown))

    domain = Domain(Path("zone"), read, lambda: next(clock))
    first, second, third = (domain.reading() for _ in range(3))
    assert first.breaks != second.breaks == third.breaks
    assert third.joules - second.joules == pytest.approx(2.0)


def test_a_package_that_was_never_readable_is_left_out_and_named(files: Powercap) -> None:
    files.broken = {"intel-rapl:1"}
    counters = CpuCounters(cpu_packages(files.root, files.read))
    assert counters.indices == [0]
    assert "intel-rapl:1/energy_uj" in counters.why_not


def test_memory_that_cannot_be_read_is_named_too(files: Powercap) -> None:
    files.broken = {"intel-rapl:0:0"}
    counters = CpuCounters(cpu_packages(files.root, files.read))
    assert counters.indices == [0, 1]
    assert "intel-rapl:0:0/energy_uj" in counters.why_not


def test_virtual_gpus_have_the_cpu_they_were_given_and_never_the_real_one() -> None:
    without = counters_of(VirtualMachine.in_memory("v100").gpus)
    assert without.indices == []
    assert "cpu=" in without.why_not
    machine = VirtualMachine.in_memory("v100", cpu_watts=120, dram_watts=15)
    counters = counters_of(machine.gpus)
    begin = counters.read(machine.clock.now())
    machine.run([0], seconds=10, watts=200)
    assert counters.between(begin, counters.read(machine.clock.now())) == ({0: 1200.0}, {0: 150.0})
    assert counters.why_not == ""


def test_a_virtual_cpu_without_memory_has_no_dram() -> None:
    counters = CpuCounters(virtual_cpus(100.0, 0.0, VirtualClock()))
    assert counters.between(counters.read(0.0), counters.read(1.0)) == ({0: 100.0}, {})


def test_the_power_of_the_virtual_cpu_is_an_option() -> None:
    spec = parse("a40x2?clock=virtual&cpu=120.5&dram=15")
    assert (spec.cpu_watts, spec.dram_watts, spec.kind) == (120.5, 15.0, "a40x2-virtual")
    for wrong in ("v100?cpu=much", "v100?cpu=-1", "v100?dram=5"):
        with pytest.raises(InputError, match="cpu=WATTS"):
            parse(wrong)


def test_a_cpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="cpu_indices"):
        counters_of(VirtualMachine.in_memory("v100", cpu_watts=1).gpus, [1])
