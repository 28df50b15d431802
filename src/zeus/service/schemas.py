"""The bodies that the routes accept, checked before anything is read from them, and the errors they answer with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from zeus.errors import InputError
from zeus.job import MAX_TRIES, Gpus, JobSpec, Outcome
from zeus.job.checks import DOTS, LEAST, MOST, NAME_LENGTH, SHOWN
from zeus.job.wire import VERSION, from_json

PREFIX_LENGTH = 180  # a hash is appended to it
SIZES = 1000  # the most batch sizes or power limits

DEFAULT_POLICY: str = next(str(one.default) for one in fields(JobSpec) if one.name == "policy")


def _no_dots(name: str) -> str:
    if name in DOTS:
        raise ValueError("give a name that is not . or ..")
    return name


Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH, pattern=f"^{SHOWN}+$"), AfterValidator(_no_dots)]
Prefix = Annotated[Name, Field(max_length=PREFIX_LENGTH)]
Text = Annotated[str, Field(max_length=NAME_LENGTH, pattern=f"^{SHOWN}*$")]
Key = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH, pattern=r"^[\x21-\x7e]+$")]
Whole = Annotated[int, Field(ge=1, le=2**53, strict=True)]
Above = Annotated[float, Field(ge=LEAST, le=MOST, allow_inf_nan=False, strict=True)]
NotBelow = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False, strict=True)]
Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False, strict=True)]
Gpus_ = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Version = Annotated[int, Field(strict=True)]
Yes = Annotated[bool, Field(strict=True)]
Counted = Annotated[list[Literal["gpu", "cpu"]], Field(min_length=1, max_length=2)]  # whose energy costs count


class Body(BaseModel):
    """A JSON object with these names and no others."""

    model_config = ConfigDict(extra="forbid")


class Spec(Body):
    """A job, with the fields of `JobSpec`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "job_id": "sentiment",
                    "job_id_prefix": "sentiment",
                    "batch_sizes": [8, 16, 32, 64, 128],
                    "default_batch_size": 32,
                    "target_metric": 0.84,
                    "max_epochs": 10,
                }
            ]
        },
    )

    kind: str = "job"
    version: Version = VERSION
    job_id: Name | None = None
    job_id_prefix: Prefix = "job"
    batch_sizes: Annotated[list[Whole], Field(min_length=1, max_length=SIZES)]
    default_batch_size: Whole
    eta_knob: NotBelow = 0.5
    beta_knob: Above | None = 2.0
    target_metric: Number = 0.5
    higher_is_better_metric: Yes = True
    max_epochs: Whole = 100
    num_pruning_rounds: Annotated[int, Field(ge=0, le=1000, strict=True)] = 2
    window_size: Annotated[int, Field(ge=0, le=10**9, strict=True)] = 0
    mab_prior_mean: Number = 0.0
    mab_prior_precision: NotBelow = 0.0
    mab_num_explorations: Annotated[int, Field(ge=1, le=10**6, strict=True)] = 2
    mab_seed: Annotated[int, Field(ge=0, le=2**53, strict=True)] | None = None
    policy: Name = DEFAULT_POLICY
    power_limits: Annotated[list[Above], Field(max_length=SIZES)] = []
    command_id: Annotated[str, Field(max_length=64, pattern="^[0-9a-f]*$")] = ""
    baseline_every: Annotated[int, Field(ge=0, le=10**6, strict=True)] = 0
    include: Counted = ["gpu"]

    def job(self) -> JobSpec:
        """The spec, validated."""
        names = {one.name for one in fields(JobSpec)}
        body = {name: value for name, value in self.model_dump().items() if name in names}
        return from_json({"kind": self.kind, "version": self.version, **body}, JobSpec)


class Register(Body):
    """The job to register, find or revise."""

    spec: Spec


class Change(Body):
    """The fields to change. A field that is left out keeps its value."""

    eta_knob: NotBelow | None = None
    beta_knob: Above | None = None
    window_size: Annotated[int, Field(ge=0, le=10**9, strict=True)] | None = None
    max_epochs: Whole | None = None
    policy: Name | None = None
    batch_sizes: Annotated[list[Whole], Field(min_length=1, max_length=SIZES)] | None = None
    default_batch_size: Whole | None = None
    target_metric: Number | None = None
    higher_is_better_metric: Yes | None = None
    power_limits: Annotated[list[Above], Field(max_length=SIZES)] | None = None
    baseline_every: Annotated[int, Field(ge=0, le=10**6, strict=True)] | None = None
    include: Counted | None = None


class Cards(Body):
    """The GPUs that a trial runs on, and whose energy its costs count."""

    gpu_name: Text = ""
    gpus: Gpus_ = 1
    max_watts: Above
    include: Counted = ["gpu"]

    def place(self) -> Gpus:
        """The GPUs, as a value of `zeus.job`."""
        return Gpus(self.gpu_name, self.gpus, self.max_watts, tuple(self.include))


class AskFor(Cards):
    """Where the trial will run, and which recurrence it belongs to."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"gpu_name": "Tesla V100", "gpus": 1, "max_watts": 250}]},
    )

    recurrence: Whole | None = None
    max_tries: Annotated[int, Field(ge=1, le=10_000, strict=True)] = MAX_TRIES


# Rows of an outcome, in the order of the fields of `zeus.job.Stretch` and `zeus.job.EpochPoint`.
StretchRow = tuple[
    Annotated[str, Field(max_length=20)],
    NotBelow | None,
    Yes,
    Whole,
    NotBelow | None,
    NotBelow,
    Whole,
    NotBelow,
    NotBelow,
]
EpochRow = tuple[Whole, Number | None, NotBelow | None, NotBelow, NotBelow | None]
HourRow = tuple[Annotated[str, Field(max_length=40)], NotBelow, Number | None, NotBelow | None]
ROWS, POINTS, HOURS = 1000, 2000, 10_000  # the most that one outcome may have


class Hourly(Body):
    """The energy of a trial by hour: rows of hour, joules, price and gCO2e per kWh."""

    rows: Annotated[list[HourRow], Field(max_length=HOURS)]
    by: Annotated[str, Field(max_length=10)] = ""
    currency: Annotated[str, Field(max_length=20)] = ""
    has_price: Yes = False
    has_carbon: Yes = False


class End(Body):
    """How a trial ended, or what it has used so far (then `ending` is `lost`)."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"ending": "converged", "joules": 5.2e6, "seconds": 31000, "epochs": 7, "metric": 0.843}]
        },
    )

    kind: str = "outcome"
    version: Version = VERSION
    ending: Annotated[str, Field(max_length=20)]
    joules: NotBelow | None = None
    seconds: NotBelow = 0.0
    epochs: Annotated[int, Field(ge=0, le=2**53, strict=True)] = 0
    metric: Number | None = None
    next_epoch_cost: NotBelow | None = None
    stretches: Annotated[list[StretchRow], Field(max_length=ROWS)] = []
    curve: Annotated[list[EpochRow], Field(max_length=POINTS)] = []
    found_watts: Above | None = None
    set_limits: Yes = False
    hourly: Hourly | None = None
    micro_batch_size: Annotated[int, Field(ge=1, le=2**53, strict=True)] | None = None
    samples: Annotated[int, Field(ge=1, le=2**53, strict=True)] | None = None

    def outcome(self) -> Outcome:
        """The outcome, validated."""
        told = self.model_dump()
        for name in ("joules", "seconds", "next_epoch_cost"):
            if told[name] is not None and 0 < told[name] < LEAST:
                raise InputError(f"{name}={told[name]}: give 0, or at least {LEAST}.")
        return from_json(told, Outcome)


class Heartbeat(Body):
    """A sign of life from a running trial."""

    so_far: End | None = None
    next_cost: NotBelow | None = None  # the trial's cost after the next epoch


class Epoch(Cards):
    """What one epoch with this batch size uses."""

    batch_size: Whole
    joules: Above
    seconds: Above


class Late(Cards):
    """A run with the default batch size that began while the service did not answer, and how it ended."""

    spec: Spec
    batch_size: Whole
    key: Key
    outcome: End


class Pardon(Body):
    """The batch size that crashed and may be offered again."""

    batch_size: Whole


class Excuse(Body):
    """The trials whose crashes were the script's fault, not their batch size's."""

    trials: Annotated[list[Whole], Field(min_length=1, max_length=SIZES)]


class Reset(Body):
    """Reset the job. With `pulse`: only if nothing has changed since that pulse was read."""

    pulse: Key | None = None


class MeasuredLimit(Body):
    """Training steps measured at one power limit."""

    power_limit: Above
    energy: NotBelow
    time: Above
    steps: Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)] = 1
    energy_error: NotBelow | None = None
    time_error: NotBelow | None = None


class Profile(Body):
    """A power profile, in its file format."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"measurements": [{"power_limit": 250, "energy": 2053.7, "time": 9.2, "steps": 40}]}]
        },
    )

    kind: str = "profile"
    version: Version = VERSION
    measurements: Annotated[list[MeasuredLimit], Field(max_length=SIZES)]
    unmeasured: Annotated[list[Above], Field(max_length=SIZES)] = []


class Login(Body):
    """The token to log in with."""

    token: Annotated[str, Field(max_length=400)]


# ---------------------------------------------------------------------- errors, for the OpenAPI document


class Wrong(BaseModel):
    """An error's code, and what to do about it."""

    code: str
    message: str


class Problem(BaseModel):
    """An error of /api/v1."""

    error: Wrong


class Message(BaseModel):
    """An error of the five old routes."""

    message: str


STATUSES = {
    400: "The body is not JSON.",
    401: "A token is needed, or the one given is unknown or revoked.",
    403: "The token's scope is too small, or a page of another site sent the request.",
    404: "There is no such job, trial or profile.",
    408: "The body arrived too slowly.",
    409: "The store already holds a different result; it was not overwritten.",
    413: "The body is too large.",
    422: "The request is invalid; the message says why.",
    429: "Too many requests from one client.",
    503: "The store did not answer. Try again.",
}


def problems(
    shape: type[BaseModel] = Problem, only: Iterable[int] = tuple(STATUSES)
) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, for the OpenAPI document."""
    return {status: {"model": shape, "description": STATUSES[status]} for status in only}
