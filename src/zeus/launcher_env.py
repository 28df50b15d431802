"""What a launcher such as `zeus run` tells a script through the environment: each variable once.

LauncherEnv(job_id="asr", batch_size=128).variables()    what the launcher sets
launcher_env()                                           what the script reads
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from zeus.settings import HERE
from zeus.settings.types import NUMBER, SWITCH, TEXT, Type, as_text, whole

BOUND = Type(
    lambda text: None if text.lower() in ("inf", "+inf", "none") else NUMBER.read(text), "a number, or inf for no bound"
)
NAMES = Type(lambda text: tuple(part.strip() for part in text.split(",")), "names with commas between them")
FROM_0, FROM_1 = whole(0), whole(1)


def _variable(name: str, kind: Type[Any], about: str) -> Any:
    return field(default=None, metadata={"variable": name, "type": kind, "about": about})


@dataclass(frozen=True, slots=True)
class LauncherEnv:
    """What a launcher tells the script. A field is None if there is no launcher or it does not set that field."""

    job_id: str | None = _variable("ZEUS_JOB_ID", TEXT, "the job")
    trial: int | None = _variable("ZEUS_TRIAL", FROM_0, "the number of the trial")
    batch_size: int | None = _variable(
        "ZEUS_BATCH_SIZE", FROM_1, "the [global](batch-size.md#the-global-batch-size) batch size of the trial"
    )
    learning_rate: float | None = _variable("ZEUS_LEARNING_RATE", NUMBER, "the learning rate for that batch size")
    cost_limit: float | None = _variable(
        "ZEUS_COST_THRESH", BOUND, "the cost, in joules, at which the trial is stopped; `inf` or `none`: no bound"
    )
    eta: float | None = _variable("ZEUS_ETA_KNOB", NUMBER, "η, from 0 (only time counts) to 1 (only energy)")
    target_metric: float | None = _variable("ZEUS_TARGET_METRIC", NUMBER, "the metric to reach")
    max_epochs: int | None = _variable("ZEUS_MAX_EPOCHS", FROM_1, "the most epochs to train")
    seed: int | None = _variable("ZEUS_SEED", FROM_0, "the seed of the trial")
    higher_is_better: bool | None = _variable(
        "ZEUS_HIGHER_IS_BETTER", SWITCH, "`1` if a higher metric is better, otherwise `0`"
    )
    outcome_file: str | None = _variable(
        "ZEUS_OUTCOME_FILE",
        TEXT,
        "the file to which the script writes what it has used so far and, if it cannot reach the store, its outcome",
    )
    trial_id: str | None = _variable(
        "ZEUS_TRIAL_ID",
        TEXT,
        "the id of the trial, in case another trial has the same number by the time the result is reported",
    )
    profile_dir: str | None = _variable(
        "ZEUS_PROFILE_DIR",
        TEXT,
        "set by `zeus profile`: the folder to which the script writes what it measured, before it ends itself",
    )
    include: tuple[str, ...] | None = _variable(
        "ZEUS_COST_INCLUDE",
        NAMES,
        "whose energy the cost counts, `gpu` or `gpu,cpu` ([more](running.md#count-the-cpu-too)). Replaces the "
        "argument `include`",
    )
    per_device_batch_size: int | None = _variable(
        "ZEUS_PER_DEVICE_BATCH_SIZE",
        FROM_1,
        "how many samples each GPU takes at once. Not set if the GPUs cannot share the batch size evenly",
    )
    accumulation_steps: int | None = _variable(
        "ZEUS_ACCUMULATION_STEPS",
        FROM_1,
        "how many such batches make one update of the weights. Set together with the one above",
    )
    spent_joules: float | None = _variable(
        "ZEUS_SPENT_JOULES",
        NUMBER,
        "the energy of earlier starts of this trial, as far as it is known. If they took time and this is not set, it "
        "is unknown",
    )
    spent_seconds: float | None = _variable(
        "ZEUS_SPENT_SECONDS",
        NUMBER,
        "the time of profiling before the first run, and of earlier starts of this trial, which [ran out of "
        "memory](running.md#batches-that-do-not-fit-in-memory). The script counts it for the trial",
    )

    def variables(self) -> dict[str, str]:
        """The variables for these values; `launcher_env` reads them back. Those of unset fields must not be set.

        >>> LauncherEnv(job_id="asr", batch_size=128, include=("gpu", "cpu")).variables()
        {'ZEUS_JOB_ID': 'asr', 'ZEUS_BATCH_SIZE': '128', 'ZEUS_COST_INCLUDE': 'gpu,cpu'}
        """
        values = {one.metadata["variable"]: getattr(self, one.name) for one in fields(self)}
        return {name: as_text(value) for name, value in values.items() if value is not None}


VARIABLES = frozenset(one.metadata["variable"] for one in fields(LauncherEnv))


def launcher_env(environ: Mapping[str, str] = HERE) -> LauncherEnv:
    """Read what a launcher tells this script.

    >>> launcher_env({"ZEUS_BATCH_SIZE": "128", "ZEUS_COST_THRESH": "1e6"}).batch_size
    128
    """
    found = {}
    for one in fields(LauncherEnv):
        if text := environ.get(one.metadata["variable"], "").strip():
            found[one.name] = one.metadata["type"].parse(one.metadata["variable"], text)
    return LauncherEnv(**found)
