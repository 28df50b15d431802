"""Writes small made-up folders in the format of the published data: six workloads, three sizes, two limits."""

from __future__ import annotations

import lzma
from pathlib import Path

from zeus.reproduce.figures.drift import SAMPLE
from zeus.simulate.cluster.composite import DLRM, PHILLY
from zeus.simulate.cluster.tables import MATCHED_COLUMNS
from zeus.simulate.drift.capriccio import COLUMNS
from zeus.simulate.pollux import PLACEMENTS, VALIDATION
from zeus.simulate.traces.rows import POWER_COLUMNS, TRAINING_COLUMNS
from zeus.simulate.workload_file import table_1

GPUS = {"v100": (250, 150), "a40": (300, 200)}


def write(folder: Path) -> Path:
    """Energy falls with the limit, and the middle size needs the fewest epochs for its time."""
    training: list[tuple[object, ...]] = []
    power: dict[str, list[tuple[object, ...]]] = {gpu: [] for gpu in GPUS}
    for setting in table_1().values():
        dataset, network, optimizer = setting.key
        for share, epochs, seconds in ((4, 2, 90.0), (2, 2, 60.0), (1, 3, 50.0)):
            size = setting.default // share
            for run in range(1, 5):
                needed = epochs + (run == 4)
                training.append((dataset, network, size, optimizer, "1e-1", run, setting.target, needed))
            for gpu, limits in GPUS.items():
                for limit in limits:
                    slow = 1.0 if limit == limits[0] else 1.15
                    power[gpu].append((dataset, network, size, optimizer, limit, seconds * slow, 0.8 * limit))
    _write(folder / "summary_train.csv", TRAINING_COLUMNS, training)
    for gpu, lines in power.items():
        _write(folder / f"summary_power_{gpu}.csv", POWER_COLUMNS, lines)
    return folder


def write_others(data: Path) -> None:
    """A cluster of twelve groups, a hundred tweets over ten days, and a run of Pollux's."""
    lives = [(f"app_{app}", 100 * i, 100 * i + 150 + 20 * app) for app in range(12) for i in range(8)]
    _write(data / DLRM, ("app_name", "creation_time", "deletion_time"), lives)
    jobs = [(f"2017-10-09 07:0{i}:00", 60.0 * (queue + 1) ** 2 + i, 1, queue) for queue in range(12) for i in range(8)]
    _write(data / PHILLY, ("timestamp", "duration", "num_gpus", "cluster"), jobs)
    tweets = [
        (
            4 * (i % 2),
            i,
            f"Tue Jun {i // 10 + 1:02} 18:18:{i % 10:02} PDT 2009",
            "NO_QUERY",
            "someone",
            f"{MOODS[i % 2]} {i}",
        )
        for i in range(100)
    ]
    _write(data / SAMPLE, COLUMNS, tweets)
    folder = data / "pollux_osdi21" / "traces" / "deepspeech2"
    _write(folder / "validation-20.csv", VALIDATION, [(100, 100, 60.0, 1.0, 2.0), (200, 200, 39.0, 1.0, 20.0)])
    _write(folder / "placements.csv", PLACEMENTS, [(1, 48, 1.0, 0.0), (4, 48, 1.3, 0.3)])


def write_groups(path: Path) -> Path:
    """Two groups of four jobs for each workload, as the authors publish them; compressed if the name ends in .xz."""
    lines: list[tuple[object, ...]] = [
        (f"{setting.key.dataset}-{which}", 100 * i, 100 * i + 150, setting.key.dataset, 0.5 + which)
        for setting in table_1().values()
        for which in range(2)
        for i in range(4)
    ]
    _write(path, MATCHED_COLUMNS, lines)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(path.read_bytes()))
    return path


MOODS = ("what a sad and gloomy day", "such a happy and sunny day")


def _write(path: Path, columns: tuple[str, ...], lines: list[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(",".join(map(str, line)) for line in (columns, *lines)) + "\n")
