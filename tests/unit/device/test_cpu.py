"""CPU and DRAM counters: unwrapping, which zones count, and what is said where they cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.device.cpu import CpuPackage, Domain, cpu_packages, unwrap, why_not
from zeus.errors import DeviceError, DeviceLost, NotPermitted, Unsupported

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


@given(st.lists(st.integers(0, PERIOD_UJ - 1), min_size=2, max_size=20))
def test_energy_never_falls_whatever_the_counter_shows(readings: list[int]) -> None:
    shown = iter(readings)

    def read(path: Path) -> str:
        return str(PERIOD_UJ if path.name == "max_energy_range_uj" else next(shown))

    domain = Domain(Path("zone"), read)
    joules = [domain.energy() for _ in readings]
    assert joules == sorted(joules)
    assert joules[0] == pytest.approx(readings[0] / 1e6)


def test_a_counter_that_comes_round_goes_on(server: Path) -> None:
    [package, _] = cpu_packages(server)
    counter = server / "intel-rapl:0" / "energy_uj"
    counter.write_text(str(PERIOD_UJ - 2_000_000))
    before = package.energy()
    counter.write_text("3000000")
    assert package.energy() - before == pytest.approx(5.0)


def test_each_package_is_counted_once_and_parts_of_it_never(server: Path) -> None:
    packages = cpu_packages(server)
    assert [(package.index, package.name) for package in packages] == [(0, "package-0"), (1, "package-1")]
    assert [package.energy() for package in packages] == pytest.approx([5.0, 5.000001])
    assert [package.dram_energy() for package in packages] == [1.0, 1.0]


def test_the_sub_zones_may_lie_beside_their_package(tmp_path: Path) -> None:
    zone(tmp_path / "intel-rapl:1", "package-1", 1)
    zone(tmp_path / "intel-rapl:1:0", "dram", 7_000_000)
    zone(tmp_path / "intel-rapl:10", "package-10", 1)
    [first, second] = cpu_packages(tmp_path)
    assert first.dram_energy() == 7.0
    assert (second.index, second.name, second.dram) == (1, "package-10", None)


def test_a_cpu_without_a_dram_counter_says_so(tmp_path: Path) -> None:
    zone(tmp_path / "intel-rapl:0", "package-0", 1)
    [package] = cpu_packages(tmp_path)
    with pytest.raises(Unsupported, match="no DRAM"):
        package.dram_energy()


def test_the_shorter_round_says_how_often_to_read(server: Path) -> None:
    [package, _] = cpu_packages(server)
    assert package.cpu.wrap_seconds == pytest.approx(524.3, abs=0.1)
    assert package.wrap_seconds == pytest.approx(131.4, abs=0.1)


def locked(path: Path) -> str:
    if path.name == "energy_uj":
        raise PermissionError(13, "Permission denied", str(path))
    return path.read_text()


def test_a_locked_counter_comes_with_the_exact_fix(server: Path) -> None:
    [package, _] = cpu_packages(server, locked)
    with pytest.raises(NotPermitted) as raised:
        package.energy()
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
    package.energy()
    package.cpu.counter.write_text("")
    with pytest.raises(DeviceError, match="could not be read"):
        package.energy()
    package.cpu.counter.unlink()
    with pytest.raises(DeviceLost, match="has disappeared"):
        package.energy()
    assert "has disappeared" in why_not(server)


def test_a_zone_that_is_half_there_is_passed_over(server: Path) -> None:
    (server / "intel-rapl:0" / "max_energy_range_uj").unlink()
    assert [package.name for package in cpu_packages(server)] == ["package-1"]


def test_a_counter_that_a_sleep_set_back_invents_no_energy() -> None:
    """After a suspend some counters begin at 0: taken for a round, that would be a hundred kilojoules from nowhere."""
    shown, clock = iter([200_000_000_000, 1_000_000, 3_000_000]), iter([100.0, 101.0, 102.0])

    def read(path: Path) -> str:
        return str(PERIOD_UJ if path.name == "max_energy_range_uj" else next(shown))

    domain = Domain(Path("zone"), read, lambda: next(clock))
    joules = [domain.energy() for _ in range(3)]
    assert [later - joules[0] for later in joules[1:]] == pytest.approx([1.0, 3.0])


def test_a_counter_that_really_came_round_between_two_rare_looks_is_believed() -> None:
    shown, clock = iter([200_000_000_000, 1_000_000]), iter([100.0, 300.0])

    def read(path: Path) -> str:
        return str(PERIOD_UJ if path.name == "max_energy_range_uj" else next(shown))

    domain = Domain(Path("zone"), read, lambda: next(clock))
    before = domain.energy()
    assert domain.energy() - before == pytest.approx(62_144.33, rel=1e-3)
