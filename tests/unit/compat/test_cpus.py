"""CPU energy as the existing package shows it, from a folder in the shape of Linux's powercap."""

from __future__ import annotations

from pathlib import Path

import pytest

from zeus.compat.cpus import CpuDramMeasurement, CPUs, EmptyCPUs, get_current_cpu_index, get_soc
from zeus.errors import NoDevice


def zone(folder: Path, name: str, microjoules: int) -> None:
    folder.mkdir(parents=True)
    for file, text in {"name": name, "energy_uj": microjoules, "max_energy_range_uj": 10**12}.items():
        (folder / file).write_text(str(text))


def test_counters_are_in_millijoules(tmp_path: Path) -> None:
    zone(tmp_path / "intel-rapl:0", "package-0", 5_000_000)
    zone(tmp_path / "intel-rapl:1", "package-1", 7_000_000)
    zone(tmp_path / "intel-rapl:1:0", "dram", 2_000_000)
    cpus = CPUs(tmp_path)
    assert len(cpus) == len(cpus.cpus) == 2
    assert [cpus.supports_get_dram_energy_consumption(i) for i in range(2)] == [False, True]
    assert cpus.get_total_energy_consumption(0) == CpuDramMeasurement(5000.0)
    assert cpus.get_total_energy_consumption(1) == CpuDramMeasurement(7000.0, 2000.0)
    with pytest.warns(DeprecationWarning):
        cpus.getTotalEnergyConsumption(0)


def test_measurements_are_subtracted_and_divided() -> None:
    both, one = CpuDramMeasurement(10.0, 4.0), CpuDramMeasurement(3.0)
    assert both - CpuDramMeasurement(4.0, 1.0) == CpuDramMeasurement(6.0, 3.0)
    assert both - one == CpuDramMeasurement(7.0)
    assert both / 2 == CpuDramMeasurement(5.0, 2.0)
    assert one / 3 == CpuDramMeasurement(1.0)


def test_there_is_no_soc() -> None:
    with pytest.raises(NoDevice, match="SoC"):
        get_soc()
    assert len(EmptyCPUs()) == 0


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/cpu0/topology").exists(), reason="needs the topology in /sys")
def test_this_process_runs_on_some_package() -> None:
    assert get_current_cpu_index() >= 0
