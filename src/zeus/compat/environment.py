"""Small functions of the existing package's `zeus.utils`: variables, the place of a machine, the cost of a run."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from zeus.cost import CostModel
from zeus.errors import InputError, NotHere
from zeus.settings import HERE

__all__ = ["get_env", "get_ip_lat_long", "zeus_cost"]

T = TypeVar("T")


def get_env(name: str, valtype: type[T], default: T | None = None) -> T:
    """A variable of the environment as this type. Without the variable, the default; InputError without either.

    >>> get_env("ZEUS_SURELY_NOT_SET", float, 1.1)
    1.1
    """
    text = HERE.get(name)
    if text is None:
        if default is None:
            raise InputError(f"the environment has no {name}. Set it.")
        return default
    try:
        return valtype(_truth(text)) if valtype is bool else valtype(text)  # type: ignore[call-arg]
    except ValueError:
        raise InputError(f"{name}={text!r}: give a value of type {valtype.__name__}.") from None


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def get_ip_lat_long() -> NoReturn:
    """NotHere: Zeus asks no other service where this machine is."""
    raise NotHere("Zeus does not look up where this machine is: give its (latitude, longitude) yourself.")


def zeus_cost(energy: float, time: float, eta_knob: float, max_power: float) -> float:
    """Equation 2: the cost of a run, in joules.

    >>> zeus_cost(energy=1000, time=10, eta_knob=0.5, max_power=250)
    1750.0
    """
    return CostModel(eta_knob, max_power).cost(energy, time)
