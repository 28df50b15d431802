"""A folder like the published traces, but small and made up: the six workloads, three sizes each, two limits."""

from __future__ import annotations

from pathlib import Path

from zeus.simulate.settings import table_1
from zeus.simulate.traces import POWER_COLUMNS, TRAINING_COLUMNS

GPUS = {"v100": (250, 150), "a40": (300, 200)}


def write(folder: Path) -> Path:
    """Energy falls with the limit, and the middle size needs the fewest epochs for its time."""
    training = [",".join(TRAINING_COLUMNS)]
    power = {gpu: [",".join(POWER_COLUMNS)] for gpu in GPUS}
    for setting in table_1().values():
        dataset, network, optimizer = setting.key
        for share, epochs, seconds in ((4, 2, 90.0), (2, 2, 60.0), (1, 3, 50.0)):
            size = setting.default // share
            for run in range(1, 5):
                row = (dataset, network, size, optimizer, "1e-1", run, setting.target, epochs + (run == 4))
                training.append(",".join(map(str, row)))
            for gpu, limits in GPUS.items():
                for limit in limits:
                    slow = 1.0 if limit == limits[0] else 1.15
                    cells = (dataset, network, size, optimizer, limit, seconds * slow, 0.8 * limit)
                    power[gpu].append(",".join(map(str, cells)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary_train.csv").write_text("\n".join(training) + "\n")
    for gpu, lines in power.items():
        (folder / f"summary_power_{gpu}.csv").write_text("\n".join(lines) + "\n")
    return folder
