"""CPU and DRAM counters: unwrapping, which zones count, and what is said where they cannot be read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.device.cpu import CpuCounters, CpuPackage, Domain, counters_of, cpu_packages, unwrap, why_not
from zeus.device.virtual import VirtualMachine
from zeus.device.virtual.machine import parse, virtual_cpus
from zeus.errors import DeviceError, DeviceLost, InputError, NotPermitted

PERIOD_UJ = 262_143_328_850


def zone(folder: Path, name: str, energy_uj: int, period_uj: int = PERIOD_UJ) -> Path:
    folder.mkdir(parents=True)
    for file, content in (("name", name), ("energy_uj", energy_uj), ("max_energy_range_uj", period_uj)):
        (folder / file).write_text(f"{content}\n")
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Two sockets as an Intel server shows them, with every zone that must not be counted."""
    root = tmp_path / "powercap"
    for socket in (0, 1):
        package = zone(root / f"intel-rapl:{socket}", f"package-{socket}", 5_000_000 + socket)
        zone(package / f"intel-rapl:{socket}:0", "core", 3_000_000)
        zone(package / f"intel-rapl:{socket}:1", "dram", 1_000_000, 65_712_999_613)
    zone(root / "intel-rapl:2", "psys", 50_000_000)
    zone(root / "intel-rapl-mmio:0", "package-0", 5_000_000)
    (root / "intel-rapl").mkdir()
    return root


@given(st.integers(1, 10**12), st.data())
def test_steps_shorter_than_a_round_add_up_to_the_whole_way(period: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, period - 1))
    steps = data.draw(st.lists(st.integers(0, period - 1), max_size=20))
    position, total = start, 0
    for step in steps:
        now = (position + step) % period
        total += unwrap(position, now, period)
        position = now
    assert total == sum(steps)


def played(readings: list[int], moments: list[float]) -> Domain:
    """A counter that shows these microjoules when it is read at these moments."""
    shown, clock = iter(readings), iter(moments)
    return Domain(
        Path("zone"),
        lambda path: str(PERIOD_UJ if path.name == "max_energy_range_uj" else next(shown)),
        lambda: next(clock),
    )


@given(st.lists(st.integers(0, PERIOD_UJ - 1), min_size=2, max_size=20))
def test_energy_never_falls_whatever_the_counter_shows(readings: list[int]) -> None:
    domain = played(readings, [0.0] * len(readings))
    joules = [domain.reading().joules for _ in readings]
    assert joules == sorted(joules)
    assert joules[0] == pytest.approx(readings[0] / 1e6)


def test_a_counter_that_comes_round_goes_on(server: Path) -> None:
    [package, _] = cpu_packages(server)
    counter = server / "intel-rapl:0" / "energy_uj"
    counter.write_text(str(PERIOD_UJ - 2_000_000))
    before = package.cpu.reading().joules
    counter.write_text("3000000")
    assert package.cpu.reading().joules - before == pytest.approx(5.0)


def test_each_package_is_counted_once_and_parts_of_it_never(server: Path) -> None:
    packages = cpu_packages(server)
    assert [(package.index, package.name) for package in packages] == [(0, "package-0"), (1, "package-1")]
    assert [package.cpu.reading().joules for package in packages] == pytest.approx([5.0, 5.000001])
    assert [package.dram.reading().joules for package in packages] == [1.0, 1.0]


def test_the_sub_zones_may_lie_beside_their_package(tmp_path: Path) -> None:
    zone(tmp_path / "intel-rapl:1", "package-1", 1)
    zone(tmp_path / "intel-rapl:1:0", "dram", 7_000_000)
    zone(tmp_path / "intel-rapl:10", "package-10", 1)
    [first, second] = cpu_packages(tmp_path)
    assert first.dram.reading().joules == 7.0
    assert (second.index, second.name, second.dram) == (1, "package-10", None)


def test_the_shorter_round_says_how_often_to_read(server: Path) -> None:
    [package, _] = cpu_packages(server)
    assert package.cpu.wrap_seconds == pytest.approx(524.3, abs=0.1)
    assert package.dram.wrap_seconds == pytest.approx(131.4, abs=0.1)
    assert CpuCounters([package]).wrap_seconds == package.dram.wrap_seconds


def locked(path: Path) -> str:
    if path.name == "energy_uj":
        raise PermissionError(13, "Permission denied", str(path))
    return path.read_text()


def test_a_locked_counter_comes_with_the_exact_fix(server: Path) -> None:
    [package, _] = cpu_packages(server, locked)
    with pytest.raises(NotPermitted) as raised:
        package.cpu.reading()
    assert f"sudo chmod o+r {server / 'intel-rapl:0' / 'energy_uj'}`" in str(raised.value)
    assert 'SUBSYSTEM=="powercap"' in str(raised.value)
    everything = why_not(server, locked)
    for part in ("intel-rapl:0/energy_uj", "intel-rapl:1/intel-rapl:1:1/energy_uj"):
        assert part in everything


def test_a_machine_that_can_measure_has_no_excuse(server: Path) -> None:
    assert why_not(server) == ""


def test_a_container_says_why_there_is_no_cpu_energy(tmp_path: Path) -> None:
    assert cpu_packages(tmp_path / "none") == []
    assert "does not exist" in why_not(tmp_path / "none")
    assert cpu_packages(tmp_path) == []
    assert "container" in why_not(tmp_path)


def test_a_counter_that_vanishes_or_stammers_is_an_error_not_a_number(server: Path) -> None:
    package: CpuPackage = cpu_packages(server)[0]
    package.cpu.reading()
    package.cpu.counter.write_text("")
    with pytest.raises(DeviceError, match="could not be read"):
        package.cpu.reading()
    package.cpu.counter.unlink()
    with pytest.raises(DeviceLost, match="has disappeared"):
        package.cpu.reading()
    assert "has disappeared" in why_not(server)


def test_a_zone_that_is_half_there_is_passed_over(server: Path) -> None:
    (server / "intel-rapl:0" / "max_energy_range_uj").unlink()
    assert [package.name for package in cpu_packages(server)] == ["package-1"]


def test_a_counter_that_a_sleep_set_back_invents_no_energy() -> None:
    """After a suspend some counters begin at 0: taken for a round, that would be a hundred kilojoules from nowhere."""
    domain = played([200_000_000_000, 1_000_000, 3_000_000], [100.0, 101.0, 102.0])
    joules = [domain.reading().joules for _ in range(3)]
    assert [later - joules[0] for later in joules[1:]] == pytest.approx([1.0, 3.0])


def test_a_counter_that_really_came_round_between_two_rare_looks_is_believed() -> None:
    domain = played([200_000_000_000, 1_000_000], [100.0, 300.0])
    before = domain.reading().joules
    assert domain.reading().joules - before == pytest.approx(62_144.33, rel=1e-3)


# ------------------------------------------------------------------------------------------------ all of a node


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
    domain = played([10_000_000, 20_000_000, 30_000_000], [0.0, 100.0, 1000.0])
    first, second, third = (domain.reading() for _ in range(3))
    assert (first.breaks, second.breaks, third.breaks) == (0, 0, 1), "524 s are enough for a wrap at 500 W"


def test_a_reset_in_between_leaves_the_energy_unknown_but_the_next_stretch_known() -> None:
    domain = played([200_000_000_000, 1_000_000, 3_000_000], [100.0, 101.0, 102.0])
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
    counters = CpuCounters(virtual_cpus(100.0, 0.0))
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
