"""What `/api/v1` takes and gives: the client writes these bodies, and the service reads them.

Values of `zeus.job` stand in them in the wire format (`zeus.job.wire`), with kind and version.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from zeus.client.api import Registered
from zeus.cost import GPU_ONLY, Include
from zeus.job import MAX_TRIES, Checked, Gpus, JobSpec, Outcome, Trial
from zeus.job.checks import MOST_SIZES, NAME_LENGTH, SHOWN
from zeus.job.value import Above, Count, NotBelow, Number, Share, Whole
from zeus.job.wire import KINDS, Json, need_version, read, to_json
from zeus.store.trial_logs import MOST_BYTES

GpuCount = Annotated[int, Meta(ge=1, le=100_000)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH, pattern=f"^{SHOWN}+$")]
Text = Annotated[str, Meta(max_length=NAME_LENGTH, pattern=f"^{SHOWN}*$")]
OwnerText = Annotated[str, Meta(max_length=2 * NAME_LENGTH + 1, pattern=f"^{SHOWN}*$")]
Key = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH, pattern=r"^[\x21-\x7e]+$")]
Sizes = Annotated[tuple[Whole, ...], Meta(min_length=1, max_length=MOST_SIZES)]
Limits = Annotated[tuple[Above, ...], Meta(max_length=MOST_SIZES)]


class Register(Checked, frozen=True):
    """The job to register, find or revise."""

    spec: JobSpec


class Change(Checked, frozen=True, kw_only=True):
    """The fields to change. A field that is left out keeps its value."""

    eta_knob: Share | UnsetType | None = UNSET
    beta_knob: Above | UnsetType | None = UNSET
    window_size: Count | UnsetType | None = UNSET
    max_epochs: Whole | UnsetType | None = UNSET
    policy: Name | UnsetType | None = UNSET
    start: Name | UnsetType | None = UNSET
    batch_sizes: Sizes | UnsetType | None = UNSET
    default_batch_size: Whole | UnsetType | None = UNSET
    target_metric: Number | UnsetType | None = UNSET
    higher_is_better_metric: bool | UnsetType | None = UNSET
    power_limits: Limits | UnsetType | None = UNSET
    baseline_every: Count | UnsetType | None = UNSET
    include: Include | UnsetType | None = UNSET
    paused: bool | UnsetType | None = UNSET
    owner: OwnerText | UnsetType | None = UNSET


class GpuBody(Checked, frozen=True, kw_only=True):
    """The GPUs that a trial runs on, and whose energy its costs count."""

    gpu_name: Text = ""
    gpus: GpuCount = 1
    max_watts: Above
    include: Include = GPU_ONLY

    @property
    def place(self) -> Gpus:
        """The GPUs, as a value of `zeus.job`."""
        return Gpus(self.gpu_name, self.gpus, self.max_watts, self.include)


class AskBody(GpuBody, frozen=True, kw_only=True):
    """Where the trial will run, and which recurrence it belongs to."""

    recurrence: Whole | None = None
    max_tries: Annotated[int, Meta(ge=1, le=10_000)] = MAX_TRIES


class HeartbeatBody(Checked, frozen=True):
    """A heartbeat of a running trial: it still runs."""

    so_far: Outcome | None = None
    next_cost: NotBelow | None = None  # the trial's cost after the next epoch


class EpochBody(GpuBody, frozen=True, kw_only=True):
    """What one epoch with this batch size uses."""

    batch_size: Whole
    joules: Above
    seconds: Above


class OfflineRunBody(GpuBody, frozen=True, kw_only=True):
    """A run with the default batch size that began while the service did not answer, and how it ended."""

    spec: JobSpec
    batch_size: Whole
    key: Key
    outcome: Outcome


class LogBody(Checked, frozen=True):
    """The end of a trial's log."""

    text: Annotated[str, Meta(max_length=MOST_BYTES)]


class Pardon(Checked, frozen=True):
    """The batch size that crashed and may be offered again."""

    batch_size: Whole


class Excuse(Checked, frozen=True):
    """The trials whose crashes were the script's fault, not their batch size's."""

    trials: Sizes


class Reset(Checked, frozen=True):
    """Reset the job. With `pulse`: only if nothing has changed since that pulse was read."""

    pulse: Key | None = None


def gpus_json(gpus: Gpus) -> Json:
    """GPUs as the fields of `GpuBody`."""
    return {
        "gpu_name": gpus.model,
        "gpus": gpus.count,
        "max_watts": gpus.max_watts,
        "include": list(gpus.include),
    }


def read_body(data: Any, kind: type[Any]) -> Any:
    """A body from JSON. InputError names what is wrong."""
    if isinstance(data, dict):
        data = {name: _unwrapped(value) for name, value in data.items()}
    return read(_unwrapped(data) if kind in KINDS else data, kind)


def _unwrapped(value: Any) -> Any:
    """A value in the wire format without its kind and version, which may also be missing."""
    if not isinstance(value, dict) or "version" not in value:
        return value
    need_version(str(value.get("kind", "")), value["version"])
    return {name: inner for name, inner in value.items() if name not in ("kind", "version")}


# ---------------------------------------------------------------------------------------------------- answers


def registered_json(now: Registered) -> Json:
    """A job as registered."""
    return {"spec": to_json(now.spec), "generation": now.generation}


def registered_from(data: Json) -> Registered:
    return Registered(read_body(data["spec"], JobSpec), str(data["generation"]))


def trial_from(data: Json) -> Trial:
    """A trial from an answer that may say more."""
    names = ("kind", "version", "leased_until", "so_far", "spec", "generation", "asked_at", "changed_at")
    return read({name: value for name, value in data.items() if name not in names}, Trial)
