"""Every environment variable that Zeus reads, one function each. No other module touches `os.environ`.

Each function takes the environment to read as an argument. The default is this process's own, with the settings of
configuration files below it (`zeus.config`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from zeus.config import PATH, SECONDS, TEXT, YES_NO, ConfigKey, Layered, is_path
from zeus.errors import InputError, suggest
from zeus.time_limits import TimeLimits
from zeus.toml_reader import Kind

RUN_ID = re.compile(r"[\w.:-]{0,100}", re.ASCII)
PATIENCE_SECONDS = 20.0  # enough for a service or a database to restart
RANK_PATIENCE_SECONDS = 30.0  # a rank shows that it is alive every two seconds


class Mode(StrEnum):
    """What Zeus may do to a training."""

    OPTIMIZE = "optimize"  # profile power limits and keep the best
    OBSERVE = "observe"  # profile, restore the limit found, and report what the best one would have saved
    OFF = "off"  # only measure


class ProfilingPlan(StrEnum):
    """How power limits are profiled. Both are plans of one profiler (`zeus.optimizer.power_limit.profiler`)."""

    WALK = "walk"  # short looks, from limit to limit, until the next ones cannot be better
    PAPER = "paper"  # every limit for five seconds (§4.2 and §5)


def _one_of(names: Iterable[str]) -> Kind:
    known = list(names)
    return (lambda value: isinstance(value, str) and value.lower() in known), " or ".join(f'"{one}"' for one in known)


def _is_rate(value: object) -> bool:
    if isinstance(value, str):
        return is_path(value) or value.startswith(("http://", "https://"))
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_RATE: Kind = (_is_rate, 'a number, or the absolute path of a file of hourly values in "quotes"')
_STORES = ("sqlite:///", "postgresql://", "postgresql+psycopg://", "http://", "https://")
_STORE: Kind = (
    lambda value: isinstance(value, str) and value.startswith(_STORES),
    "sqlite:///path, postgresql+psycopg://user@host/name or http://host:port",
)

# The settings that a configuration file may have.
SETTINGS = (
    ConfigKey("store", "ZEUS_STORE", _STORE, is_secret=True),  # it may hold a password
    ConfigKey("token_file", "ZEUS_TOKEN_FILE", PATH),
    ConfigKey("patience", "ZEUS_PATIENCE", SECONDS, default=f"{PATIENCE_SECONDS:g}"),
    ConfigKey("mode", "ZEUS_MODE", _one_of(Mode), default=Mode.OPTIMIZE, is_safety=True),
    ConfigKey("profiling", "ZEUS_PROFILING", _one_of(ProfilingPlan), default=ProfilingPlan.WALK),
    ConfigKey("gpu", "ZEUS_GPU", TEXT, default="auto"),
    ConfigKey("read_only", "ZEUS_READ_ONLY", YES_NO, default="0", is_safety=True),
    ConfigKey("quiet", "ZEUS_QUIET", YES_NO, default="0"),
    ConfigKey("log_dir", "ZEUS_LOG_DIR", PATH),
    ConfigKey("data", "ZEUS_DATA", PATH),
    ConfigKey("cost.price", "ZEUS_PRICE_PER_KWH", _RATE),
    ConfigKey("cost.currency", "ZEUS_CURRENCY", TEXT),
    ConfigKey("cost.carbon", "ZEUS_GCO2E_PER_KWH", _RATE),
    ConfigKey("cost.carbon_token_file", "ZEUS_GCO2E_TOKEN_FILE", PATH),
    ConfigKey("keeper.socket", "ZEUS_KEEPER", (lambda value: value == "private" or is_path(value), PATH[1])),
    ConfigKey("keeper.state", "ZEUS_KEEPER_STATE", PATH),
)

# This process's variables, always up to date, and below them the settings of configuration files.
HERE = Layered(os.environ, SETTINGS)


def mode(given: str | Mode | None = None, environ: Mapping[str, str] = HERE) -> Mode:
    """The given mode, or else that of ZEUS_MODE, or else `optimize`."""
    text = given if given is not None else environ.get("ZEUS_MODE") or Mode.OPTIMIZE
    try:
        return Mode(str(text).lower())
    except ValueError:
        name = "mode" if given is not None else "ZEUS_MODE"
        raise InputError(f"{name}={str(text)!r}: give optimize, observe or off.") from None


def profiling_plan(given: str | ProfilingPlan | None = None, environ: Mapping[str, str] = HERE) -> ProfilingPlan:
    """The given plan, or else that of ZEUS_PROFILING, or else `walk`."""
    text = str(given if given is not None else environ.get("ZEUS_PROFILING") or ProfilingPlan.WALK)
    try:
        return ProfilingPlan(text.lower())
    except ValueError:
        where = "profiling" if given is not None else "ZEUS_PROFILING"
        raise InputError(
            f"{where}={text!r} is not known. {suggest(text, [one.value for one in ProfilingPlan])}"
        ) from None


@dataclass(frozen=True, slots=True)
class Orders:
    """What a launcher tells the script. A field is None if there is no launcher or it does not set that field."""

    job_id: str | None = None
    trial: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    cost_limit: float | None = None
    eta: float | None = None
    target_metric: float | None = None
    max_epochs: int | None = None
    seed: int | None = None
    higher_is_better: bool | None = None
    outcome_file: str | None = None  # where the script writes its outcome if it cannot reach the store
    trial_id: str | None = None  # distinguishes two trials with the same number
    profile_dir: str | None = None  # only under `zeus profile`: where the script leaves what it measured
    include: tuple[str, ...] | None = None  # whose energy the cost counts
    per_device_batch_size: int | None = None  # samples on each GPU at once
    accumulation_steps: int | None = None  # batches whose gradients make one update of the weights
    spent_joules: float | None = None  # by earlier starts of this trial; None: unknown, if they took time
    spent_seconds: float | None = None


def orders(environ: Mapping[str, str] = HERE) -> Orders:
    """Read what a launcher tells this script.

    >>> orders({"ZEUS_BATCH_SIZE": "128", "ZEUS_COST_THRESH": "1e6"}).batch_size
    128
    """
    return Orders(**{field: read(environ, name) for field, (name, read) in _ORDERS.items()})  # type: ignore[arg-type]


def written(given: Orders) -> dict[str, str]:
    """The variables for these orders; `orders` reads them back. Unset fields must be absent from the environment.

    >>> written(Orders(job_id="asr", batch_size=128, include=("gpu", "cpu")))
    {'ZEUS_JOB_ID': 'asr', 'ZEUS_BATCH_SIZE': '128', 'ZEUS_COST_INCLUDE': 'gpu,cpu'}
    """
    values = {name: getattr(given, field) for field, (name, _) in _ORDERS.items()}
    return {name: _word(value) for name, value in values.items() if value is not None}


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(int(value) if isinstance(value, bool) else value)


PRICE, CURRENCY, CARBON = "ZEUS_PRICE_PER_KWH", "ZEUS_CURRENCY", "ZEUS_GCO2E_PER_KWH"


def price_per_kwh(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_PRICE_PER_KWH: a number, or a file of hourly values. Empty if it is not set."""
    return environ.get(PRICE, "").strip()


def gco2e_per_kwh(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_GCO2E_PER_KWH: a number, a file of hourly values, or the URL of a source. Empty if it is not set."""
    return environ.get(CARBON, "").strip()


def gco2e_token(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_GCO2E_TOKEN, or the content of ZEUS_GCO2E_TOKEN_FILE: the token for an online source of carbon intensity."""
    return _secret(environ, "ZEUS_GCO2E_TOKEN")


def currency(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_CURRENCY: the currency of prices. Empty if it is not set."""
    return environ.get(CURRENCY, "").strip()


def quiet(environ: Mapping[str, str] = HERE) -> bool:
    """ZEUS_QUIET: do not even print the summary line. False if it is unclear: no training stops for that."""
    try:
        return bool(_flag(environ, "ZEUS_QUIET"))
    except InputError:
        return False


def patience(environ: Mapping[str, str] = HERE) -> float:
    """ZEUS_PATIENCE: how many seconds a run waits at its start for an unreachable store. The default is 20."""
    seconds = _number(environ, "ZEUS_PATIENCE")
    if seconds is not None and seconds < 0:
        raise InputError(f"ZEUS_PATIENCE={seconds:g}: give seconds of at least 0. 0 means not to wait.")
    return PATIENCE_SECONDS if seconds is None else seconds


def time_limits(environ: Mapping[str, str] = HERE) -> TimeLimits:
    """ZEUS_TIME_LIMITS: other time limits than the usual ones, for Zeus's own tests and the processes that they start.

    >>> time_limits({"ZEUS_TIME_LIMITS": "grace=0.5 driver_answer=0.2"}).grace
    0.5
    """
    return _time_limits(environ.get("ZEUS_TIME_LIMITS", ""))


@functools.cache
def _time_limits(text: str) -> TimeLimits:
    try:
        pairs = (pair.split("=") for pair in text.split())
        return TimeLimits(**{name: float(seconds) for name, seconds in pairs})
    except (TypeError, ValueError) as wrong:
        raise InputError(f"ZEUS_TIME_LIMITS={text!r}: {wrong}. Unset it: it is for Zeus's own tests.") from wrong


# ---------------------------------------------------------------------------------------------------- devices


def gpu(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_GPU: which cards to use. The default is "auto"."""
    return environ.get("ZEUS_GPU", "").strip() or "auto"


def is_virtual(environ: Mapping[str, str] = HERE) -> bool:
    return gpu(environ).startswith("virtual")


VIRTUAL_STATE = "ZEUS_VIRTUAL_STATE"


def virtual_state(environ: Mapping[str, str] = HERE) -> str | None:
    """ZEUS_VIRTUAL_STATE: the file that holds the state of virtual cards."""
    return environ.get(VIRTUAL_STATE) or None


def read_only(environ: Mapping[str, str] = HERE) -> bool:
    """ZEUS_READ_ONLY: do not change anything on a card. Also if it is neither yes nor no."""
    try:
        return bool(_flag(environ, "ZEUS_READ_ONLY"))
    except InputError:
        return True


def why_read_only(environ: Mapping[str, str] = HERE) -> str:
    """Why Zeus must not lower the limit of a card, and what to do. Empty if it may.

    It must not if somebody said so, and if what somebody said is unclear.
    """
    try:
        if _flag(environ, "ZEUS_READ_ONLY"):
            return "ZEUS_READ_ONLY=1 is set. Unset it to let Zeus change GPU settings."
    except InputError as unclear:
        return f"{unclear} Until then, Zeus changes no GPU setting."
    for setting in SETTINGS:
        if isinstance(environ, Layered) and (where := environ.doubt(setting.variable)):
            return f"{where} leaves open what {setting.key} is. Run `zeus doctor`, or set {setting.variable}."
    return ""


def refuse_mistakes() -> None:
    """Raise InputError if a configuration file is wrong, or a variable is neither yes nor no."""
    HERE.refuse_mistakes()
    for name in ("ZEUS_READ_ONLY", "ZEUS_QUIET"):
        _flag(HERE, name)


def keeper(environ: Mapping[str, str] = HERE) -> str | None:
    """ZEUS_KEEPER: the socket of a keeper, or "private"."""
    return environ.get("ZEUS_KEEPER") or None


def keeper_state(environ: Mapping[str, str] = HERE) -> str | None:
    """ZEUS_KEEPER_STATE: the folder for the keeper's notes."""
    return environ.get("ZEUS_KEEPER_STATE") or None


def job_name(environ: Mapping[str, str] = HERE) -> str:
    """What the keeper's audit calls this process's job: ZEUS_JOB_ID, or the number of a Slurm job. May be empty."""
    slurm = environ.get("SLURM_JOB_ID", "")
    return environ.get("ZEUS_JOB_ID", "") or (f"slurm:{slurm}" if slurm else "")


def notify_socket(environ: Mapping[str, str] = HERE) -> str:
    """NOTIFY_SOCKET: the socket on which systemd expects a service to report its state."""
    return environ.get("NOTIFY_SOCKET", "")


# ---------------------------------------------------------------------------------------------------- ranks


def rank_patience(environ: Mapping[str, str] = HERE) -> float:
    """ZEUS_RANK_PATIENCE: after how many seconds without a sign of life a rank is lost. The default is 30."""
    seconds = _number(environ, "ZEUS_RANK_PATIENCE")
    if seconds is not None and seconds <= 0:
        raise InputError(f"ZEUS_RANK_PATIENCE={seconds:g}: give seconds above 0.")
    return RANK_PATIENCE_SECONDS if seconds is None else seconds


def elastic_start(environ: Mapping[str, str] = HERE) -> int:
    """TORCHELASTIC_RESTART_COUNT: how often torchrun has started the ranks again after one failed."""
    return int(_number(environ, "TORCHELASTIC_RESTART_COUNT") or 0)


def has_several_ranks(environ: Mapping[str, str] = HERE) -> bool:
    """WORLD_SIZE: whether a launcher started several processes."""
    return environ.get("WORLD_SIZE", "1") != "1"


# ---------------------------------------------------------------------------------------------------- locations


def store(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_STORE: the address of the store. Empty for the user's own store."""
    return environ.get("ZEUS_STORE", "")


def token(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_TOKEN, or the content of ZEUS_TOKEN_FILE: the token for a service. Empty if there is none."""
    return _secret(environ, "ZEUS_TOKEN")


def token_file(environ: Mapping[str, str] = HERE) -> Path | None:
    """ZEUS_TOKEN_FILE: the file that holds the token for a service. None if ZEUS_TOKEN or nothing is used."""
    path = environ.get("ZEUS_TOKEN_FILE", "").strip()
    return Path(path).expanduser() if path and not environ.get("ZEUS_TOKEN", "").strip() else None


def run_id(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_RUN_ID: a run with the id of an earlier one that was interrupted continues it. Empty if there is none."""
    text = environ.get("ZEUS_RUN_ID", "").strip()
    if not RUN_ID.fullmatch(text):
        raise InputError(f"ZEUS_RUN_ID={text!r}: give up to 100 letters, digits and any of . _ : -")
    return text


def nodes(environ: Mapping[str, str] = HERE) -> int:
    """ZEUS_NODES: on how many nodes the command of a job trains, each with the GPUs of this one."""
    text = environ.get("ZEUS_NODES", "").strip() or "1"
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise InputError(f"ZEUS_NODES={text!r}: give a whole number of at least 1.")
    return int(text)


def slurm_job(environ: Mapping[str, str] = HERE) -> str:
    """ZEUS_SLURM_COMMENT and SLURM_JOB_ID: the job of Slurm whose comment gets the energy. Empty for none.

    For a task of an array, its id there: the last task has the number of the whole array, which would mean all tasks.

    >>> slurm_job({"ZEUS_SLURM_COMMENT": "1", "SLURM_JOB_ID": "9"})
    '9'
    >>> array = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "2"}
    >>> slurm_job({"ZEUS_SLURM_COMMENT": "1", "SLURM_JOB_ID": "9", **array})
    '9_2'
    """
    if not _flag(environ, "ZEUS_SLURM_COMMENT"):
        return ""
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")


def log_dir(environ: Mapping[str, str] = HERE) -> str | None:
    """ZEUS_LOG_DIR: where `zeus run` keeps the logs of trials."""
    return environ.get("ZEUS_LOG_DIR") or None


def data(environ: Mapping[str, str] = HERE) -> Path | None:
    """ZEUS_DATA: the folder of published traces and data sets."""
    return Path(given) if (given := environ.get("ZEUS_DATA")) else None


def data_folder(environ: Mapping[str, str] = HERE) -> Path:
    """XDG_DATA_HOME: the user's folder for data that Zeus keeps."""
    if given := environ.get("XDG_DATA_HOME"):
        return Path(given) / "zeus"
    try:
        return Path.home() / ".local" / "share" / "zeus"
    except RuntimeError:  # the user has no home, as in some containers
        return Path(tempfile.gettempdir()) / f"zeus-{os.getuid()}" / "zeus"


def runtime_folder(environ: Mapping[str, str] = HERE) -> Path | None:
    """XDG_RUNTIME_DIR: the user's folder for files that last as long as the login session.

    None if it is unset, or names a folder that this process cannot use. A batch job inherits the variable of the login
    node, but a compute node has no such folder.
    """
    given = environ.get("XDG_RUNTIME_DIR")
    return Path(given) if given and Path(given).is_dir() and os.access(given, os.W_OK) else None


def temporary_folder(environ: Mapping[str, str] = HERE) -> Path:
    """TMPDIR, or the system's temporary folder."""
    return Path(environ.get("TMPDIR") or tempfile.gettempdir())


def shared_metrics(environ: Mapping[str, str] = HERE) -> bool:
    """PROMETHEUS_MULTIPROC_DIR: whether several workers of a service share their metrics."""
    return bool(environ.get("PROMETHEUS_MULTIPROC_DIR"))


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


# ---------------------------------------------------------------------------------------------------- reading


def _secret(environ: Mapping[str, str], name: str) -> str:
    """The value of a variable, or else the content of the file that NAME_FILE names."""
    text, path = environ.get(name, "").strip(), environ.get(f"{name}_FILE", "").strip()
    if text or not path:
        return text
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as wrong:
        why = wrong.strerror if isinstance(wrong, OSError) else "it is not text"
        raise InputError(
            f"{name}_FILE={path}: the token cannot be read: {why}. Make the file readable for this user, or name "
            "another."
        ) from wrong


def _text(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(name) or None


def _number(environ: Mapping[str, str], name: str) -> float | None:
    text = environ.get(name, "").strip()
    if not text or text.lower() in ("inf", "+inf", "none"):
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{name}={text!r}: give a number.")
    return value


def _whole(environ: Mapping[str, str], name: str, least: int) -> int | None:
    value = _number(environ, name)
    if value is None:
        return None
    if value != int(value) or value < least:
        raise InputError(f"{name}={environ[name]!r}: give a whole number of at least {least}.")
    return int(value)


def _names(environ: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Names with commas between them."""
    return tuple(part.strip() for part in text.split(",")) if (text := environ.get(name, "").strip()) else None


_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _flag(environ: Mapping[str, str], name: str) -> bool | None:
    """Yes or no, in any of the usual words. None if it is not set."""
    text = environ.get(name, "").strip()
    if text and text.lower() not in (*_YES, *_NO):
        raise InputError(f"{name}={text!r}: give 1 or 0.")
    return text.lower() in _YES if text else None


_from_0, _from_1 = functools.partial(_whole, least=0), functools.partial(_whole, least=1)
# Of each field of `Orders`: its variable, and what reads it.
_ORDERS: dict[str, tuple[str, Callable[[Mapping[str, str], str], object]]] = {
    "job_id": ("ZEUS_JOB_ID", _text),
    "trial": ("ZEUS_TRIAL", _from_0),
    "trial_id": ("ZEUS_TRIAL_ID", _text),
    "batch_size": ("ZEUS_BATCH_SIZE", _from_1),
    "learning_rate": ("ZEUS_LEARNING_RATE", _number),
    "cost_limit": ("ZEUS_COST_THRESH", _number),
    "eta": ("ZEUS_ETA_KNOB", _number),
    "target_metric": ("ZEUS_TARGET_METRIC", _number),
    "higher_is_better": ("ZEUS_HIGHER_IS_BETTER", _flag),
    "max_epochs": ("ZEUS_MAX_EPOCHS", _from_1),
    "seed": ("ZEUS_SEED", _from_0),
    "outcome_file": ("ZEUS_OUTCOME_FILE", _text),
    "profile_dir": ("ZEUS_PROFILE_DIR", _text),
    "include": ("ZEUS_COST_INCLUDE", _names),
    "per_device_batch_size": ("ZEUS_PER_DEVICE_BATCH_SIZE", _from_1),
    "accumulation_steps": ("ZEUS_ACCUMULATION_STEPS", _from_1),
    "spent_joules": ("ZEUS_SPENT_JOULES", _number),
    "spent_seconds": ("ZEUS_SPENT_SECONDS", _number),
}
