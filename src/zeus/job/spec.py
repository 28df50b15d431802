"""The specification of a recurring job."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass

from zeus.cost import GPU_ONLY, Include, included
from zeus.job.checks import LEAST, is_number, is_unicode, is_whole, need, need_whole, whole_wanted


def is_reached(target: float, metric: float, higher_is_better: bool) -> bool:
    """Whether this metric meets a target. One that is not finite, as of a training that diverged, never does."""
    return math.isfinite(metric) and (metric >= target if higher_is_better else metric <= target)


@dataclass(frozen=True, slots=True)
class Target:
    """The metric that a training must reach.

    >>> Target(0.8).reached(0.8), Target(40.0, higher_is_better=False).reached(41.0)
    (True, False)
    """

    metric: float
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        need(is_number(self.metric), "target_metric", self.metric, "a finite number")
        need(isinstance(self.higher_is_better, bool), "higher_is_better_metric", self.higher_is_better, "true or false")

    def __str__(self) -> str:
        return f"{'>=' if self.higher_is_better else '<='} {self.metric:g}"

    def reached(self, metric: float) -> bool:
        """Whether this metric meets the target."""
        return is_reached(self.metric, metric, self.higher_is_better)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
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
    batch_sizes: tuple[int, ...]
    default_batch_size: int
    eta_knob: float = 0.5
    beta_knob: float | None = 2.0
    target_metric: float = 0.5
    higher_is_better_metric: bool = True
    max_epochs: int = 100
    num_pruning_rounds: int = 2
    window_size: int = 0  # 0: nothing is forgotten
    mab_prior_mean: float = 0.0
    mab_prior_precision: float = 0.0  # 0: flat, nothing is known before the first run
    mab_num_explorations: int = 2
    mab_seed: int | None = None
    policy: str = "structured"
    power_limits: tuple[float, ...] = ()  # watts; empty: all in steps of 25 W
    command_id: str = ""  # identifies the command of `zeus run`, so that two commands do not share a job
    baseline_every: int = 0  # one recurrence in so many runs with the default, to measure it; 0: never
    include: Include = GPU_ONLY  # whose energy the costs count: ("gpu",), or ("gpu", "cpu") for the CPU and its memory

    def __post_init__(self) -> None:
        need(bool(self.job_id_prefix) or bool(self.job_id), "job_id_prefix", self.job_id_prefix, "a name")
        for name in ("job_id", "job_id_prefix"):
            need(is_unicode(getattr(self, name) or ""), name, getattr(self, name), "a name that UTF-8 can hold")
        sizes = tuple(self.batch_sizes)
        need(bool(sizes), "batch_sizes", self.batch_sizes, "one whole number or more, each at least 1")
        wrong = [size for size in sizes if not is_whole(size, 1)]
        need(not wrong, "batch_sizes", self.batch_sizes, f"sizes, each {whole_wanted(wrong[0] if wrong else 0, 1)}")
        need(len(set(sizes)) == len(sizes), "batch_sizes", self.batch_sizes, "each size once")
        object.__setattr__(self, "batch_sizes", tuple(sorted(sizes)))
        offered = is_whole(self.default_batch_size, 1) and self.default_batch_size in sizes
        need(offered, "default_batch_size", self.default_batch_size, f"one of {list(sizes)}")
        need(is_number(self.eta_knob, 0, 1), "eta_knob", self.eta_knob, "a number from 0 to 1")
        need(
            self.beta_knob is None or is_number(self.beta_knob, 1),
            "beta_knob",
            self.beta_knob,
            "a number of at least 1 (a lower bound would stop even the cheapest run), or None for no bound",
        )
        Target(self.target_metric, self.higher_is_better_metric)  # checks both
        need_whole("max_epochs", self.max_epochs, 1)
        for name, least in (
            ("num_pruning_rounds", 0),
            ("window_size", 0),
            ("mab_num_explorations", 1),
            ("baseline_every", 0),
        ):
            need_whole(name, getattr(self, name), least)
        need(is_number(self.mab_prior_mean), "mab_prior_mean", self.mab_prior_mean, "a cost in joules")
        sound = is_number(self.mab_prior_precision, 0)
        need(sound, "mab_prior_precision", self.mab_prior_precision, "1/variance of the prior, or 0 for a flat one")
        if self.mab_seed is not None:
            need_whole("mab_seed", self.mab_seed, 0)
        limits = tuple(self.power_limits)
        sound = all(is_number(watts, LEAST) for watts in limits) and len(set(limits)) == len(limits)
        need(sound, "power_limits", self.power_limits, "watts above 0, each once, or nothing for all limits")
        object.__setattr__(self, "power_limits", tuple(sorted(limits, reverse=True)))
        object.__setattr__(self, "include", included(self.include))

    @property
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

    @property
    def target(self) -> Target:
        return Target(self.target_metric, self.higher_is_better_metric)

    def reached(self, metric: float) -> bool:
        """Whether this metric meets the target."""
        return self.target.reached(metric)
