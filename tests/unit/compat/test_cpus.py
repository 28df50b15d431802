"""CPU energy as the existing package shows it, from a folder in the shape of Linux's powercap."""

from __future__ import annotations

from pathlib import Path

import pytest

from zeus.compat.cpus import CpuDramMeasurement, CPUs, get_soc
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


def test_there_is_no_soc() -> None:
    with pytest.raises(NoDevice, match="SoC"):
        get_soc()
