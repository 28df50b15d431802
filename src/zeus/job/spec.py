"""The specification of a recurring job."""

from __future__ import annotations

import hashlib
import json
import math
from functools import cached_property
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import force_setattr

from zeus.cost import GPU_ONLY, LEAST, MOST, Include, included
from zeus.job.checks import MOST_SIZES, is_number, is_unicode, is_whole, need, whole_wanted
from zeus.job.value import Above, Checked, Count, NotBelow, Number, Share, Whole

STARTS: Final = ("default", "profiled")
FIRST_OCTAVES: Final = 2.0  # how far from the default the first run may be


def is_reached(target: float, metric: float, higher_is_better: bool) -> bool:
    """Whether this metric meets a target. One that is not finite, as of a training that diverged, never does."""
    return math.isfinite(metric) and (metric >= target if higher_is_better else metric <= target)


class Target(Checked, frozen=True):
    """The metric that a training must reach.

    >>> Target(0.8).reached(0.8), Target(40.0, higher_is_better=False).reached(41.0)
    (True, False)
    """

    metric: Number
    higher_is_better: bool = True

    def __str__(self) -> str:
        return f"{'>=' if self.higher_is_better else '<='} {self.metric:g}"

    def reached(self, metric: float) -> bool:
        """Whether this metric meets the target."""
        return is_reached(self.metric, metric, self.higher_is_better)


class JobSpec(Checked, frozen=True, kw_only=True, dict=True):
    """A recurring training job: its batch sizes, target and preferences.

    Batch sizes are global: the samples in one update of the weights, over all GPUs and accumulated batches.
    `eta_knob` is η (0: only time counts, 1: only energy counts). `beta_knob` is β: a trial stops when its cost would
    pass β times the cheapest run; None: no trial is stopped for its cost. Raises InputError if a value cannot be used.

    >>> job = JobSpec(job_id_prefix="asr", batch_sizes=[8, 16, 32], default_batch_size=16)
    >>> job.batch_sizes, job.id == JobSpec(job_id_prefix="asr", batch_sizes=[32, 8, 16], default_batch_size=16).id
    ((8, 16, 32), True)
    """

    job_id: str | None = None
    job_id_prefix: str
    batch_sizes: tuple[Whole, ...]
    default_batch_size: Whole
    eta_knob: Share = 0.5
    beta_knob: Annotated[float, Meta(ge=1, le=MOST)] | None = 2.0  # below 1 it would stop even the cheapest run
    target_metric: Number = 0.5
    higher_is_better_metric: bool = True
    max_epochs: Whole = 100
    num_pruning_rounds: Count = 2
    window_size: Count = 0  # 0: nothing is forgotten
    mab_prior_mean: Number = 0.0
    mab_prior_precision: NotBelow = 0.0  # 0: flat, nothing is known before the first run
    mab_num_explorations: Whole = 2
    mab_seed: Count | None = None
    policy: str = "structured"
    start: str = "default"  # the size of the first run; "profiled": the best one that `zeus profile` foretells
    power_limits: tuple[Above, ...] = ()  # watts; empty: all in steps of 25 W
    command_id: str = ""  # identifies the command of `zeus run`, so that two commands do not share a job
    command: str | None = None  # of the job file, with its placeholders, only to be shown; None: unknown
    baseline_every: Count = 0  # one recurrence in so many runs with the default, to measure it; 0: never
    include: Include = GPU_ONLY  # whose energy the costs count: ("gpu",), or ("gpu", "cpu") for the CPU and its memory

    def __post_init__(self) -> None:
        super().__post_init__()
        need(bool(self.job_id_prefix) or bool(self.job_id), "job_id_prefix", self.job_id_prefix, "a name")
        for name in ("job_id", "job_id_prefix"):
            need(is_unicode(getattr(self, name) or ""), name, getattr(self, name), "a name that UTF-8 can hold")
        need(is_unicode(self.command or ""), "command", self.command, "a text that UTF-8 can hold")
        need(self.start in STARTS, "start", self.start, " or ".join(f'"{one}"' for one in STARTS))
        sizes = tuple(self.batch_sizes)
        need(bool(sizes), "batch_sizes", self.batch_sizes, "one whole number or more, each at least 1")
        wrong = [size for size in sizes if not is_whole(size, 1)]
        need(not wrong, "batch_sizes", self.batch_sizes, f"sizes, each {whole_wanted(wrong[0] if wrong else 0, 1)}")
        need(len(sizes) <= MOST_SIZES, "batch_sizes", self.batch_sizes, f"at most {MOST_SIZES} sizes")
        need(len(set(sizes)) == len(sizes), "batch_sizes", self.batch_sizes, "each size once")
        need(self.default_batch_size in sizes, "default_batch_size", self.default_batch_size, f"one of {list(sizes)}")
        limits = tuple(self.power_limits)
        sound = all(is_number(watts, LEAST) for watts in limits) and len(set(limits)) == len(limits)
        need(sound, "power_limits", self.power_limits, "watts above 0, each once, or nothing for all limits")
        need(len(limits) <= MOST_SIZES, "power_limits", self.power_limits, f"at most {MOST_SIZES} limits")
        for name, value in (
            ("batch_sizes", tuple(sorted(sizes))),
            ("power_limits", tuple(sorted(limits, reverse=True))),
            ("include", included(self.include)),
        ):
            force_setattr(self, name, value)

    @cached_property
    def id(self) -> str:
        """`job_id`, or else the prefix and a hash of the batch sizes, the default size and the target.

        η, β, the window, max_epochs, the policy and `include` are not part of the hash: the owner may change them.
        """
        if self.job_id is not None:
            return self.job_id
        identity = [self.batch_sizes, self.default_batch_size, self.target_metric, self.higher_is_better_metric]
        return f"{self.job_id_prefix}-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:10]}"

    @property
    def beta(self) -> float:
        """β; infinite if no trial is to be stopped for its cost."""
        return math.inf if self.beta_knob is None else self.beta_knob

    @cached_property
    def first_sizes(self) -> tuple[int, ...]:
        """The sizes that the first run may have. `start = "profiled"`: all within FIRST_OCTAVES of the default.

        >>> sizes = [2, 8, 16, 32, 64]
        >>> JobSpec(job_id_prefix="asr", batch_sizes=sizes, default_batch_size=16, start="profiled").first_sizes
        (8, 16, 32, 64)
        """
        if self.start == "default":
            return (self.default_batch_size,)
        ratios = ((size, size / self.default_batch_size) for size in self.batch_sizes)
        return tuple(size for size, ratio in ratios if max(ratio, 1 / ratio) <= 2**FIRST_OCTAVES)

    @cached_property
    def target(self) -> Target:
        return Target(self.target_metric, self.higher_is_better_metric)

    def reached(self, metric: float) -> bool:
        """Whether this metric meets the target."""
        return self.target.reached(metric)
