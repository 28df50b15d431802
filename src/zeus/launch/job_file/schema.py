"""The keys of a job file and the values that each may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from zeus.job import JobSpec
from zeus.job.checks import is_number, is_whole
from zeus.launch.job_file.placements import PLACEMENTS
from zeus.launch.job_file.values import AUTO, LearningRate, MetricsSource
from zeus.settings import Mode
from zeus.toml_reader import Kind, kinds_of


def _int(value: Any) -> bool:
    """Whether it is an integer of TOML. Its range is checked where it is used, mostly in `JobSpec`."""
    return isinstance(value, int) and not isinstance(value, bool)


def _gpus(value: Any) -> bool:
    if not isinstance(value, list):
        return bool(value == "all")
    return bool(value) and all(is_whole(one, 0) for one in value) and len(set(value)) == len(value)


def _micro(value: Any) -> bool:
    return is_whole(value, 0) or bool(value == AUTO)


def _included(value: Any) -> bool:
    return isinstance(value, list) and value in (["gpu"], ["gpu", "cpu"], ["cpu", "gpu"])


def _rate(value: Any) -> bool:
    return is_number(value) or (isinstance(value, str) and bool(value.strip()))


TEXT = (lambda value: isinstance(value, str) and bool(value.strip()), 'a text in "quotes"')
NUMBER = (is_number, "a number")
WHOLE = (_int, "a whole number")
YES_NO = (lambda value: isinstance(value, bool), "true or false")
SIZES = (lambda value: isinstance(value, list) and all(map(_int, value)), "a list of whole numbers such as [32, 64]")
WATTS = (lambda value: isinstance(value, list) and all(map(is_number, value)), "a list of watts such as [250, 200]")

KINDS: Mapping[Any, Kind] = {
    str: TEXT,
    bool: YES_NO,
    int: WHOLE,
    float: NUMBER,
    tuple[int, ...]: SIZES,
    tuple[float, ...]: WATTS,
}
RENAMED = {  # key in the file -> field of JobSpec, where they differ
    "name": "job_id_prefix",
    "higher_is_better": "higher_is_better_metric",
    "eta": "eta_knob",
    "beta": "beta_knob",
    "window": "window_size",
}
# Fields of JobSpec that the reader fills by itself: from the command, and from [baseline] and [cost].
NOT_KEYS = frozenset({"command", "command_id", "baseline_every", "include"})
SPEC = {field: field for field in JobSpec.__struct_fields__ if field not in NOT_KEYS | set(RENAMED.values())} | RENAMED


def _kind(field: str) -> Kind:
    """What the key of a field may hold: the type of the field. JobSpec itself checks the range."""
    hint = get_type_hints(JobSpec)[field]
    return next(KINDS[one] for one in (hint, *get_args(hint)) if one in KINDS)


TABLE = (lambda value: isinstance(value, dict), "a table")
TOP: Mapping[str, Kind] = {
    **{key: _kind(field) for key, field in SPEC.items()},
    "command": TEXT,
    "max_tries": (lambda value: is_whole(value, 1), "a whole number from 1 to 2**53"),
    "gpus": (_gpus, '"all", or a list of different indices such as [0, 1]'),
    "mode": (lambda value: value in tuple(Mode), '"optimize", "observe" or "off"'),
    "profiling": TEXT,
    "micro_batch_size": (_micro, 'a whole number of samples, 0 to split no batch, or "auto"'),
    "learning_rate": TABLE,
    "metrics": TABLE,
    "env": TABLE,
    "baseline": TABLE,
    "cost": TABLE,
    **dict.fromkeys(PLACEMENTS, TABLE),
}
TABLES: Mapping[str, Mapping[str, Kind]] = {
    **PLACEMENTS,
    "learning_rate": kinds_of(LearningRate),
    "metrics": kinds_of(MetricsSource),
    "baseline": {
        "every": (lambda value: is_whole(value, 0), "a whole number of recurrences up to 2**53, or 0 for never"),
    },
    "cost": {
        "include": (_included, '["gpu"], or ["gpu", "cpu"] to count the CPU and its memory too'),
        "price": (_rate, "a number, or the name of a CSV or JSON file of hourly values"),
        "carbon": (_rate, "a number, or the name of a CSV or JSON file of hourly values"),
        "currency": TEXT,
    },
}
NEEDED = ("name", "command", "batch_sizes", "default_batch_size", "target_metric", "max_epochs")
