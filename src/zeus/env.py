"""The ZEUS_* contract between launcher and script, and what the user may set: read here and nowhere else."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from zeus.errors import InputError

JOULES_PER_KWH = 3.6e6
PATIENCE_SECONDS = 20.0  # a service or a database is restarted in less


class Mode(StrEnum):
    """What Zeus may do to a training."""

    OPTIMIZE = "optimize"  # profile power limits and keep the best
    OBSERVE = "observe"  # profile, go back to the limit found, and report what the best would have saved
    OFF = "off"  # only measure


def mode(given: str | Mode | None = None, environ: Mapping[str, str] = os.environ) -> Mode:
    """The mode given, or that of ZEUS_MODE, or `optimize`."""
    text = given if given is not None else environ.get("ZEUS_MODE") or Mode.OPTIMIZE
    try:
        return Mode(str(text).lower())
    except ValueError:
        raise InputError(f"mode {str(text)!r}: give optimize, observe or off.") from None


@dataclass(frozen=True, slots=True)
class Orders:
    """What a launcher tells the script; None where there is no launcher or it does not say."""

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
    outcome_file: str | None = None  # where the script leaves how it ended, if it cannot tell the store
    trial_id: str | None = None  # of two trials with one number, which is meant


def orders(environ: Mapping[str, str] = os.environ) -> Orders:
    """Read them.

    >>> orders({"ZEUS_BATCH_SIZE": "128", "ZEUS_COST_THRESH": "1e6"}).batch_size
    128
    """
    return Orders(
        job_id=environ.get("ZEUS_JOB_ID") or None,
        trial=_whole(environ, "ZEUS_TRIAL", least=0),
        trial_id=environ.get("ZEUS_TRIAL_ID") or None,
        batch_size=_whole(environ, "ZEUS_BATCH_SIZE", least=1),
        learning_rate=_number(environ, "ZEUS_LEARNING_RATE"),
        cost_limit=_number(environ, "ZEUS_COST_THRESH"),
        eta=_number(environ, "ZEUS_ETA_KNOB"),
        target_metric=_number(environ, "ZEUS_TARGET_METRIC"),
        max_epochs=_whole(environ, "ZEUS_MAX_EPOCHS", least=1),
        seed=_whole(environ, "ZEUS_SEED", least=0),
        higher_is_better=_flag(environ, "ZEUS_HIGHER_IS_BETTER"),
        outcome_file=environ.get("ZEUS_OUTCOME_FILE") or None,
    )


def written(said: Orders) -> dict[str, str]:
    """The variables that say this; `orders` reads them back. What is not said must be absent, not left over.

    >>> written(Orders(job_id="asr", batch_size=128))
    {'ZEUS_JOB_ID': 'asr', 'ZEUS_BATCH_SIZE': '128'}
    """
    words = {
        "ZEUS_JOB_ID": said.job_id,
        "ZEUS_TRIAL": said.trial,
        "ZEUS_TRIAL_ID": said.trial_id,
        "ZEUS_BATCH_SIZE": said.batch_size,
        "ZEUS_LEARNING_RATE": said.learning_rate,
        "ZEUS_COST_THRESH": said.cost_limit,
        "ZEUS_ETA_KNOB": said.eta,
        "ZEUS_TARGET_METRIC": said.target_metric,
        "ZEUS_HIGHER_IS_BETTER": None if said.higher_is_better is None else int(said.higher_is_better),
        "ZEUS_MAX_EPOCHS": said.max_epochs,
        "ZEUS_SEED": said.seed,
        "ZEUS_OUTCOME_FILE": said.outcome_file,
    }
    return {name: str(value) for name, value in words.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Prices:
    """What a kilowatt-hour costs, given by the user as plain numbers; nobody is asked over a network."""

    per_kwh: float | None = None
    currency: str = ""
    gco2e_per_kwh: float | None = None

    def money(self, joules: float) -> float | None:
        """What this energy costs; None where no price is set.

        >>> Prices(per_kwh=0.3).money(3.6e6), Prices().money(3.6e6)
        (0.3, None)
        """
        return None if self.per_kwh is None else joules / JOULES_PER_KWH * self.per_kwh

    def gco2e(self, joules: float) -> float | None:
        """Grams of CO2 equivalent; None where nobody said how many a kilowatt-hour is."""
        return None if self.gco2e_per_kwh is None else joules / JOULES_PER_KWH * self.gco2e_per_kwh


def prices(environ: Mapping[str, str] = os.environ) -> Prices:
    """ZEUS_PRICE_PER_KWH, ZEUS_CURRENCY and ZEUS_GCO2E_PER_KWH."""
    return Prices(
        _number(environ, "ZEUS_PRICE_PER_KWH"),
        environ.get("ZEUS_CURRENCY", ""),
        _number(environ, "ZEUS_GCO2E_PER_KWH"),
    )


def quiet(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether not even the summary line may be written."""
    return environ.get("ZEUS_QUIET", "0") not in ("", "0")


def patience(environ: Mapping[str, str] = os.environ) -> float:
    """ZEUS_PATIENCE: seconds for which a run that begins waits for a store that is away; 20 where it is not set."""
    seconds = _number(environ, "ZEUS_PATIENCE")
    if seconds is not None and seconds < 0:
        raise InputError(f"ZEUS_PATIENCE={seconds:g}: give seconds, 0 for not waiting at all.")
    return PATIENCE_SECONDS if seconds is None else seconds


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


def _flag(environ: Mapping[str, str], name: str) -> bool | None:
    text = environ.get(name, "").strip()
    if text not in ("", "0", "1"):
        raise InputError(f"{name}={text!r}: give 1 or 0.")
    return None if not text else text == "1"
