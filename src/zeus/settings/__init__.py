"""Every setting of Zeus, each once: its key, variable, type, default and meaning.

    patience = Setting("patience", "ZEUS_PATIENCE", SECONDS, 20, "how many seconds ...")
    patience()           the value here: of the variable, or else of a configuration file, or else the default
    patience(environ)    the value in another environment

The checks of variables and files, their messages, `zeus env` and the table in docs/reference.md all come from this
table. Below it are what Zeus reads of others. No other module touches `os.environ`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from zeus.errors import InputError
from zeus.settings.config_file import Layered
from zeus.settings.types import (
    KEEPER_SOCKET,
    PATH,
    RATE,
    RUN_ID,
    SECONDS,
    SECONDS_ABOVE_0,
    STORE,
    SWITCH,
    TEXT,
    TIME_LIMITS,
    TimeLimits,
    Type,
    as_text,
    one_of,
    whole,
)

T = TypeVar("T")


class Mode(StrEnum):
    """What Zeus may do to a training."""

    OPTIMIZE = "optimize"  # profile power limits and keep the best
    OBSERVE = "observe"  # profile, restore the limit found, and report what the best one would have saved
    OFF = "off"  # only measure


class ProfilingPlan(StrEnum):
    """How power limits are profiled. Both are plans of one profiler (`zeus.optimizer.power_limit.profiler`)."""

    WALK = "walk"  # short looks, from limit to limit, until the next ones cannot be better
    PAPER = "paper"  # every limit for five seconds (§4.2 and §5)


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A setting. Called, it gives its value.

    Args:
        key: Its name, which is its key in configuration files. The key may be in a table: `cost.price`.
        variable: The variable, which goes before the files.
        type: How its value is written.
        default: Its value if it is not set.
        about: What it means, as the documentation says it.
        in_files: Whether a file may set it.
        is_secret: Whether its value must not be shown.
        is_safety: Whether it says what Zeus may change.
        unclear: Its value if the variable is wrong. None: that is an error.
    """

    key: str
    variable: str
    type: Type[T]
    default: T
    about: str
    in_files: bool = True
    is_secret: bool = False
    is_safety: bool = False
    unclear: T | None = None

    def __call__(self, environ: Mapping[str, str] | None = None, *, given: str | None = None) -> T:
        """The value in this environment, by default that of this process and below it the configuration files.

        Args:
            environ: The environment.
            given: The value of an argument, which goes before the environment.

        Raises:
            InputError: It is wrong.
        """
        if given is not None:
            return self.type.parse(self.key, given)
        try:
            return self.checked(environ)
        except InputError:
            if self.unclear is None:
                raise
            return self.unclear

    def checked(self, environ: Mapping[str, str] | None = None) -> T:
        """Like a call, but a wrong variable is always an error."""
        text = (HERE if environ is None else environ).get(self.variable, "").strip()
        return self.type.parse(self.variable, text) if text else self.default

    @property
    def default_text(self) -> str:
        """The default as the variable would have it. Empty if it is not always the same."""
        return as_text(self.default) if isinstance(self.default, str | int | float) else ""

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.key.split("."))


@dataclass(frozen=True, kw_only=True)
class Secret(Setting[str]):
    """A secret, which may also be in a file that another setting names."""

    file: Setting[Path | None]

    def __call__(self, environ: Mapping[str, str] | None = None, *, given: str | None = None) -> str:
        value, path = super().__call__(environ, given=given), self.file(environ)
        if value or path is None:
            return value
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as wrong:
            why = wrong.strerror if isinstance(wrong, OSError) else "it is not text"
            raise InputError(
                f"{self.file.variable}={path}: the token cannot be read: {why}. Make the file readable for this user, "
                "or name another."
            ) from wrong


# ---------------------------------------------------------------------------------------------------- the table

config: Setting[Path | None] = Setting(
    "config", "ZEUS_CONFIG", PATH, None,
    "a [configuration file](#configuration-files) to read instead of the usual two; empty: read none",
    in_files=False,
)  # fmt: skip
gpu = Setting(
    "gpu", "ZEUS_GPU", TEXT, "auto",
    "which GPUs to use: `auto`, `nvml`, `amd` or `virtual:...` ([devices](devices.md))",
)  # fmt: skip
virtual_state: Setting[Path | None] = Setting(
    "virtual_state", "ZEUS_VIRTUAL_STATE", PATH, None,
    "the file with the state of virtual cards, which all processes that name it share; default: [private "
    "cards](devices.md#who-shares-the-cards). `zeus run`, `zeus profile` and `zeus measure` set it for their "
    "command",
    in_files=False,
)  # fmt: skip
store = Setting(
    "store", "ZEUS_STORE", STORE, "",
    "the store of recurring jobs: `sqlite:///path`, `postgresql+psycopg://user@host/name` or a service, "
    "`http://host:port` ([the store](store.md)); default: `$XDG_DATA_HOME/zeus/zeus.db`",
    is_secret=True,  # it may hold a password
)  # fmt: skip
token_file: Setting[Path | None] = Setting(
    "token_file", "ZEUS_TOKEN_FILE", PATH, None, "a file that holds `ZEUS_TOKEN`"
)
token = Secret(
    "token", "ZEUS_TOKEN", TEXT, "",
    "the token for a service; also as `http://:TOKEN@host:port`",
    in_files=False, is_secret=True, file=token_file,
)  # fmt: skip
patience = Setting(
    "patience", "ZEUS_PATIENCE", SECONDS, 20,  # enough for a service or a database to restart
    "how many seconds a run waits at its beginning for a store or service that is unreachable; 0: do not wait",
)  # fmt: skip
rank_patience = Setting(
    "rank_patience", "ZEUS_RANK_PATIENCE", SECONDS_ABOVE_0, 30,  # a rank shows that it is alive every two seconds
    "after how many seconds without an answer a rank of a distributed training is "
    "[lost](clusters.md#a-rank-is-lost)",
    in_files=False,
)  # fmt: skip
mode = Setting(
    "mode", "ZEUS_MODE", one_of(Mode), Mode.OPTIMIZE,
    "`optimize`, `observe` or `off` ([the power limit](power-limit.md))",
    is_safety=True,
)  # fmt: skip
profiling_plan = Setting(
    "profiling", "ZEUS_PROFILING", one_of(ProfilingPlan), ProfilingPlan.WALK,
    "how power limits are profiled: `walk` or `paper` ([every limit for five "
    "seconds](power-limit.md#the-papers-way))",
)  # fmt: skip
read_only = Setting(
    "read_only", "ZEUS_READ_ONLY", SWITCH, False,
    "`1`: Zeus changes no setting of any device, and restores no power limit",
    is_safety=True, unclear=True,
)  # fmt: skip
quiet = Setting(
    "quiet", "ZEUS_QUIET", SWITCH, False,
    "`1`: print only errors, no summary and no progress",
    unclear=False,
)  # fmt: skip
keeper = Setting(
    "keeper.socket", "ZEUS_KEEPER", KEEPER_SOCKET, "",
    "the socket of the keeper to use, or (for `zeus keeper`) to serve; `private`: start a private keeper, even [in a "
    "container](keeper.md#in-a-container)",
)  # fmt: skip
keeper_state: Setting[Path | None] = Setting(
    "keeper.state", "ZEUS_KEEPER_STATE", PATH, None, "the folder of the keeper's notes and locks"
)
run_id = Setting(
    "run_id", "ZEUS_RUN_ID", RUN_ID, "",
    "an id for a run. A `zeus run` with the id of an earlier one that was interrupted continues it: recurrences that "
    "are over are not run again, and an unfinished one goes on with its next trial. No two runs at a time may have the "
    "same id. [`zeus run --on slurm`](clusters.md#slurm) sets it, and so does [`--on ray`](clusters.md#ray) if you do "
    "not",
    in_files=False,
)  # fmt: skip
nodes = Setting(
    "nodes", "ZEUS_NODES", whole(1), 1,
    "on how many nodes the command of `zeus run` trains, each with the GPUs of this one. The batch script of `zeus run "
    "--on slurm` sets it",
    in_files=False,
)  # fmt: skip
slurm_comment = Setting(
    "slurm_comment", "ZEUS_SLURM_COMMENT", SWITCH, False,
    "`1`, set by the batch script of `zeus run --on slurm`: write the energy into the comment of the job "
    "`SLURM_JOB_ID`. For a task of an array, `SLURM_ARRAY_JOB_ID` and `SLURM_ARRAY_TASK_ID` name it",
    in_files=False,
)  # fmt: skip
log_dir: Setting[Path | None] = Setting(
    "log_dir", "ZEUS_LOG_DIR", PATH, None,
    "where `zeus run` keeps the output of trials; default: `logs` beside the store",
)  # fmt: skip
data: Setting[Path | None] = Setting(
    "data", "ZEUS_DATA", PATH, None,
    "folder of data sets; `zeus simulate`, tests and benchmarks use the published traces in it",
)  # fmt: skip
price_per_kwh = Setting(
    "cost.price", "ZEUS_PRICE_PER_KWH", RATE, "",
    "the price of a kWh, as a number or a file of hourly values ([money and carbon](measuring.md#money-and-carbon))",
)  # fmt: skip
currency = Setting("cost.currency", "ZEUS_CURRENCY", TEXT, "", "the currency of the price")
gco2e_per_kwh = Setting(
    "cost.carbon", "ZEUS_GCO2E_PER_KWH", RATE, "",
    "grams of CO2 equivalent per kWh: a number, a file of hourly values, or the URL of an online source",
)  # fmt: skip
gco2e_token_file: Setting[Path | None] = Setting(
    "cost.carbon_token_file", "ZEUS_GCO2E_TOKEN_FILE", PATH, None, "a file that holds `ZEUS_GCO2E_TOKEN`"
)
gco2e_token = Secret(
    "cost.carbon_token", "ZEUS_GCO2E_TOKEN", TEXT, "",
    "the token for an online source of carbon intensity",
    in_files=False, is_secret=True, file=gco2e_token_file,
)  # fmt: skip
logs_days = Setting(
    "retention.logs_days", "ZEUS_LOGS_DAYS", whole(0), 30,
    "for how many days the store keeps the ends of trials' logs ([logs](service.md#logs)); 0: it keeps none",
)  # fmt: skip
log_bytes = Setting(
    "retention.log_bytes", "ZEUS_LOG_BYTES", whole(0), 65_536,
    "how many bytes of a trial's log the store keeps, the last ones; at most 65536",
)  # fmt: skip
time_limits = Setting(
    "time_limits", "ZEUS_TIME_LIMITS", TIME_LIMITS, TimeLimits(),
    "for Zeus's own tests: other time limits than the usual ones, as in `grace=0.5 driver_answer=2`",
    in_files=False,
)  # fmt: skip

SETTINGS: tuple[Setting[Any], ...] = tuple(one for one in list(globals().values()) if isinstance(one, Setting))

# This process's variables, always up to date, and below them the settings of configuration files.
HERE = Layered(os.environ, SETTINGS)


def why_read_only(environ: Mapping[str, str] = HERE) -> str:
    """Why Zeus must not lower the limit of a card, and what to do. Empty if it may.

    It must not if somebody said so, and if what somebody said is unclear.
    """
    try:
        if read_only.checked(environ):
            return f"{read_only.variable}=1 is set. Unset it to let Zeus change GPU settings."
    except InputError as unclear:
        return f"{unclear} Until then, Zeus changes no GPU setting."
    for one in SETTINGS:
        if isinstance(environ, Layered) and (where := environ.doubt(one.variable)):
            return f"{where} leaves open what {one.key} is. Run `zeus doctor`, or set {one.variable}."
    return ""


def refuse_mistakes(environ: Layered = HERE) -> None:
    """Raise InputError if a configuration file or a variable is wrong."""
    if mistakes := environ.mistakes():
        raise InputError("\n".join(mistakes))
    for one in SETTINGS:
        one.checked(environ)


# ---------------------------------------------------------------------------------------------------- other variables


def is_virtual(environ: Mapping[str, str] = HERE) -> bool:
    """Whether `ZEUS_GPU` names virtual cards."""
    return gpu(environ).startswith("virtual")


def job_name(environ: Mapping[str, str] = HERE) -> str:
    """What the keeper's audit calls this process's job: ZEUS_JOB_ID, or the number of a Slurm job. May be empty."""
    slurm = environ.get("SLURM_JOB_ID", "")
    return environ.get("ZEUS_JOB_ID", "") or (f"slurm:{slurm}" if slurm else "")


def slurm_job(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_SLURM_COMMENT and SLURM_JOB_ID: the job of Slurm whose comment gets the energy. Empty for none.

    For a task of an array, its id there: the last task has the number of the whole array, which would mean all tasks.

    >>> slurm_job({"ZEUS_SLURM_COMMENT": "1", "SLURM_JOB_ID": "9"})
    '9'
    >>> array = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "2"}
    >>> slurm_job({"ZEUS_SLURM_COMMENT": "1", "SLURM_JOB_ID": "9", **array})
    '9_2'
    """
    if not slurm_comment(environ):
        return ""
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")


def notify_socket(environ: Mapping[str, str] = HERE) -> str:
    """NOTIFY_SOCKET: the socket on which systemd expects a service to report its state."""
    return environ.get("NOTIFY_SOCKET", "")


def elastic_start(environ: Mapping[str, str] = HERE) -> int:
    """TORCHELASTIC_RESTART_COUNT: how often torchrun has started the ranks again after one failed."""
    text = environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(text) if text.isdecimal() else 0


def has_several_ranks(environ: Mapping[str, str] = HERE) -> bool:
    """WORLD_SIZE: whether a launcher started several processes."""
    return environ.get("WORLD_SIZE", "1") != "1"


def shared_metrics(environ: Mapping[str, str] = HERE) -> bool:
    """PROMETHEUS_MULTIPROC_DIR: whether several workers of a service share their metrics."""
    return bool(environ.get("PROMETHEUS_MULTIPROC_DIR"))


def data_folder(environ: Mapping[str, str] = HERE) -> Path:
    """XDG_DATA_HOME: the user's folder for data that Zeus keeps."""
    if given := environ.get("XDG_DATA_HOME"):
        return Path(given) / "zeus"
    try:
        return Path.home() / ".local" / "share" / "zeus"
    except RuntimeError:  # the user has no home, as in some containers
        return temporary_folder(environ) / "zeus"


def runtime_folder(environ: Mapping[str, str] = HERE) -> Path | None:
    """XDG_RUNTIME_DIR: the user's folder for files that last as long as the login session.

    None if it is unset, or names a folder that this process cannot use. A batch job inherits the variable of the login
    node, but a compute node has no such folder.
    """
    given = environ.get("XDG_RUNTIME_DIR")
    return Path(given) if given and Path(given).is_dir() and os.access(given, os.W_OK) else None


def temporary_folder(environ: Mapping[str, str] = HERE) -> Path:
    """TMPDIR, or the system's temporary folder: this user's folder there, if there is no better one."""
    return Path(environ.get("TMPDIR") or tempfile.gettempdir()) / f"zeus-{os.geteuid()}"


# ---------------------------------------------------------------------------------------------------- passing on


def inherited(without: Collection[str] = ()) -> dict[str, str]:
    """This process's variables, for a child process, without the ones named."""
    return {name: value for name, value in os.environ.items() if name not in without}


@contextlib.contextmanager
def changed(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set these variables inside a `with` block. None unsets a variable."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        put(variables)
        yield
    finally:
        put(before)


def put(variables: Mapping[str, str | None]) -> None:
    """Set these variables for this process and its children. None unsets a variable."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
