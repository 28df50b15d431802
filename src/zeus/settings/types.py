"""Types of settings: how the text of a variable is read, and which values a configuration file may have for it."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from zeus.errors import InputError
from zeus.toml_reader import Kind

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Choice = TypeVar("Choice", bound=StrEnum)

_RUN_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_STORES = ("sqlite:///", "postgresql://", "postgresql+psycopg://", "http://", "https://")


@dataclass(frozen=True, slots=True)
class Type(Generic[T_co]):
    """How a value is written.

    Args:
        read: The value of a text. Raises ValueError if there is none.
        words: What to give, for messages.
        toml: Its types in a configuration file.
        toml_words: What to give there, if that is not the same.
        is_fit: Whether a file may have a value that a variable may have.
    """

    read: Callable[[str], T_co]
    words: str
    toml: tuple[type, ...] = (str,)
    toml_words: str = ""
    is_fit: Callable[[str], bool] = bool

    def parse(self, name: str, text: str) -> T_co:
        """The value of the variable of this name. Raises InputError if it has none."""
        try:
            return self.read(text)
        except ValueError:
            raise InputError(f"{name}={text!r}: give {self.words}.") from None

    @property
    def in_file(self) -> Kind:
        return self._fits, self.toml_words or self.words

    def _fits(self, value: Any) -> bool:
        if type(value) not in self.toml or (isinstance(value, str) and ("\0" in value or not value.strip())):
            return False
        try:
            self.read(as_text(value))
        except ValueError:
            return False
        return self.is_fit(as_text(value))


def as_text(value: Any) -> str:
    """A value of a file, or of a setting, as a variable has it.

    >>> as_text(True), as_text(0.3), as_text("observe"), as_text(("gpu", "cpu"))
    ('1', '0.3', 'observe', 'gpu,cpu')
    """
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def is_path(value: Any) -> bool:
    """Whether it is the name of a file wherever a process runs."""
    return isinstance(value, str) and value.startswith(("/", "~/")) and "\0" not in value


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as homeless:  # the user has no home, as in some containers
        raise ValueError(text) from homeless


def _location(text: str) -> str:
    """A path as a text, or what else somebody writes in place of one."""
    return str(_path(text)) if text.startswith("~/") else text


def _number(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise ValueError(text)
    return found


def _checked(read: Callable[[str], T], is_right: Callable[[T], object]) -> Callable[[str], T]:
    """Like `read`, but only for values for which `is_right` is true."""

    def checked(text: str) -> T:
        if not is_right(value := read(text)):
            raise ValueError(text)
        return value

    return checked


def whole(least: int) -> Type[int]:
    """Whole numbers from `least` up."""
    return Type(_checked(int, lambda value: value >= least), f"a whole number of at least {least}", (int,))


def one_of(kind: type[Choice]) -> Type[Choice]:
    """The names of an enumeration, in any case."""
    *most, last = kind
    return Type(lambda text: kind(text.lower()), f"{', '.join(most)} or {last}")


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError(text)
    return _SWITCH[text.lower()]


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long Zeus waits before it gives up, in seconds. The defaults are what every user gets; tests wait less."""

    # a driver
    driver_answer: float = 5.0  # for a reading, which takes milliseconds
    driver_opening: float = 60.0  # for opening a driver, which takes seconds for each card that sleeps

    # a keeper
    keeper_greeting: float = 5.0  # a running keeper answers at once: this needs no driver
    keeper_answer: float = 10.0  # setting the limits of a whole machine takes a second or two
    keeper_recovery: float = 5.0  # how often the system keeper looks for limits left behind by a dead private keeper

    # the command of a trial
    grace: float = 10.0  # between asking a command to end and killing it
    leftovers: float = 2.0  # for processes that it left behind, which free the GPU as they end
    killed: float = 10.0  # a killed process that lives longer stays: another user's, or stuck in a driver
    line: float = 1.0  # to match an expression of [metrics] against one line; usually microseconds

    # a database
    database_busy: float = 30.0  # how long a writer waits for the others before it gives up
    database_silent: float = 5.0  # how much longer than that a silent server is waited for
    database_connect: float = 10.0  # how long a server may take to accept a connection

    # a store or service that is unreachable
    store_retry: float = 3.0  # for all tries together, in the middle of a run
    store_answer: float = 3.0  # for the answer to one of them
    store_rest: float = 15.0  # before a training loop tries again; twice as long each time
    store_longest_rest: float = 120.0  # no longer than the time between two renewals
    delivery: float = 10.0  # longest delivery at one contact; the remaining messages wait for the next
    outcome_retry: float = 300.0  # for an outcome that can be neither sent nor written; training is over by then
    outcome_pause: float = 5.0  # between two such tries


@functools.cache
def _time_limits(text: str) -> TimeLimits:
    names = {one.name for one in fields(TimeLimits)}
    given = [pair.partition("=") for pair in text.split()]
    if not names.issuperset(name for name, _, _ in given):
        raise ValueError(text)
    return TimeLimits(**{name: float(seconds) for name, _, seconds in given})


def _is_rate(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return is_path(text) or text.startswith(("http://", "https://"))


TEXT = Type(str, "a text", toml_words='a text in "quotes"')
SWITCH = Type(_switch, "1 or 0", (bool,), "true or false")
NUMBER = Type(_number, "a number", (int, float))
SECONDS = Type(_checked(_number, lambda seconds: 0 <= seconds < 1e9), "seconds of at least 0", (int, float))
SECONDS_ABOVE_0 = Type(_checked(_number, lambda seconds: 0 < seconds < 1e9), "seconds above 0", (int, float))
PATH = Type(_path, "a path", toml_words='an absolute path in "quotes"; it may begin with ~/', is_fit=is_path)
RUN_ID = Type(_checked(str, _RUN_ID.fullmatch), "up to 100 letters, digits and any of . _ : -")
TIME_LIMITS = Type(_time_limits, "`name=seconds` of known names, or unset it: it is for Zeus's own tests")

# These are checked in full where they are used, because that needs more than the text.
STORE = Type(
    str, "sqlite:///path, postgresql+psycopg://user@host/name or http://host:port",
    is_fit=lambda text: text.startswith(_STORES),
)  # fmt: skip
RATE = Type(
    _location, "a number, or a file of hourly values", (str, int, float),
    'a number, or the absolute path of a file of hourly values in "quotes"', _is_rate,
)  # fmt: skip
KEEPER_SOCKET = Type(
    _location, "the path of a socket, or private",
    toml_words='an absolute path in "quotes", or "private"', is_fit=lambda text: text == "private" or is_path(text),
)  # fmt: skip
