"""The hands on the driver of libnvidia_ml.c: make its state file, set what its cards do, read what was done to them.

    def test_it(fake_nvml):                            # two H200-like cards, seen by pynvml in this process
        card = fake_nvml.cards[0]
        card.power_watts = 300                         # from now on; the past stays in counter and buffer
        card.pulses(high=600, low=100, period=0.13, duty=0.5)
        card.fail("counter", "not_supported")          # or "lost", "stuck", "hang", ...; heal() undoes it
        card.slow("samples", 0.5)                      # each call takes half a second
        card.garbage("power", 4294967.295, seconds=1)  # what the driver says, whatever the card draws
        card.restart_counter()                         # it counts from 0 again
        subprocess.run([...], env=fake_nvml.env())     # another process, the same cards
        assert fake_nvml.calls() == []                 # nobody set anything

With `freeze()` the driver's clock stands still and moves by `advance(seconds)` only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from ctypes import POINTER, c_char, c_double, c_int, c_int64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.programs import run_python

SONAME = "libnvidia-ml.so.1"
GROUPS = (
    "all", "open", "name", "counter", "samples", "power", "instant", "limits", "default_limit", "persistence",
    "temperature", "processes", "speed", "set",
)  # fmt: skip
FAILURES = {
    "works": 0, "uninitialized": 1, "invalid_argument": 2, "not_supported": 3, "no_permission": 4, "not_found": 6,
    "timeout": 10, "function_not_found": 13, "lost": 15, "reset_required": 16, "unknown": 999,
    "empty": 1001,  # "samples" only: the call succeeds and gives none
    "stuck": 1002,  # "counter" only: it stands still
    "hang": 1003,  # the call does not come back before the card is healed
}  # fmt: skip
FUNCTIONS = ("set_limit", "set_persistence")
VALUE_TYPES = ("double", "uint", "ulong", "ulonglong", "longlong", "int", "ushort")
CARDS, TEXT, PIDS, MIGS, SEGMENTS, CALLS, LOST = 8, 96, 32, 7, 256, 256, 64


class _Garbage(ctypes.Structure):
    _fields_ = [("from_ns", c_int64), ("until_ns", c_int64), ("value", c_double)]


class _Segment(ctypes.Structure):
    _fields_ = [("start_ns", c_int64), ("high_mw", c_double), ("low_mw", c_double), ("period_ns", c_int64),
                ("on_ns", c_int64), ("phase_ns", c_int64), ("base_mj", c_double)]  # fmt: skip


class _Card(ctypes.Structure):
    _fields_ = [
        *((name, c_char * TEXT) for name in ("uuid", "name", "bus_id")),
        *((name, c_int64) for name in ("min_mw", "max_mw", "default_mw", "limit_mw", "persistence", "temperature",
                                       "sm_mhz", "cores", "slowdowns", "n_pids")),
        ("pids", c_int64 * PIDS), ("n_migs", c_int64), ("migs", (c_char * TEXT) * MIGS),
        *((name, c_int64) for name in ("counter_period_ns", "sample_period_ns", "sample_latency_ns", "sample_means",
                                       "sample_type", "average_ns", "stuck_at_ns")),
        *((name, c_int64 * len(GROUPS)) for name in ("fail", "reads", "slow_ns")),
        ("bad_power", _Garbage), ("bad_counter", _Garbage), ("counter_zero_mj", c_double),
        ("n_segments", c_int64), ("segments", _Segment * SEGMENTS),
        ("n_lost", c_int64), ("lost_mw", c_int64 * LOST),
    ]  # fmt: skip


class _Call(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("pid", "uid", "card", "function", "value", "result", "time_ns")]


class _State(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("size", "n_cards", "clock_ns", "wall_base_ns", "step_at_ns", "step_ns",
                                       "only_uid", "n_calls")),
        ("calls", _Call * CALLS), ("cards", _Card * CARDS),
    ]  # fmt: skip


@dataclass(frozen=True)
class SetterCall:
    """A setter that reached the driver: by whom, on which card, with which value (watts or a bool), how it ended."""

    pid: int
    uid: int
    card: int
    function: str
    value: float
    error: int  # 0, or NVML's code
    time: float  # monotonic seconds of the driver's clock


def _scaled(field: str, scale: float) -> Any:
    def get(self: FakeCard) -> float:
        return getattr(self._raw, field) / scale

    def put(self: FakeCard, value: float) -> None:
        setattr(self._raw, field, round(value * scale))

    return property(get, put)


def _text(field: str) -> Any:
    return property(
        lambda self: getattr(self._raw, field).decode(), lambda self, x: setattr(self._raw, field, x.encode())
    )


class FakeCard:
    """One card; every attribute is the driver's own memory, read and written in place."""

    uuid = _text("uuid")
    name = _text("name")
    bus_id = _text("bus_id")
    min_watts = _scaled("min_mw", 1e3)
    max_watts = _scaled("max_mw", 1e3)
    default_watts = _scaled("default_mw", 1e3)
    limit_watts = _scaled("limit_mw", 1e3)
    temperature = _scaled("temperature", 1)
    sm_mhz = _scaled("sm_mhz", 1)
    cores = _scaled("cores", 1)
    slowdowns = _scaled("slowdowns", 1)  # why its clocks are held down, as NVML's bits
    counter_period = _scaled("counter_period_ns", 1e9)  # 0: exact
    sample_period = _scaled("sample_period_ns", 1e9)  # 0: no sample buffer
    sample_latency = _scaled("sample_latency_ns", 1e9)  # the newest is this old, plus up to a period
    average_seconds = _scaled("average_ns", 1e9)  # what the plain power reading averages over; 0: nothing

    def __init__(self, fake: FakeNvml, index: int) -> None:
        self._fake = fake
        self.index = index
        self._raw = fake._state.cards[index]

    @property
    def persistence(self) -> bool:
        return bool(self._raw.persistence)

    @persistence.setter
    def persistence(self, on: bool) -> None:
        self._raw.persistence = on

    @property
    def samples_are_means(self) -> bool:
        """Each sample is the mean of its period (the default), or else the power at its moment."""
        return bool(self._raw.sample_means)

    @samples_are_means.setter
    def samples_are_means(self, on: bool) -> None:
        self._raw.sample_means = on

    @property
    def sample_type(self) -> str:
        return VALUE_TYPES[self._raw.sample_type]

    @sample_type.setter
    def sample_type(self, name: str) -> None:
        self._raw.sample_type = VALUE_TYPES.index(name)

    @property
    def processes(self) -> list[int]:
        return list(self._raw.pids[: self._raw.n_pids])

    @processes.setter
    def processes(self, pids: Sequence[int]) -> None:
        self._raw.pids[: len(pids)] = pids
        self._raw.n_pids = len(pids)

    @property
    def migs(self) -> list[str]:
        """UUIDs (`MIG-...`) of its MIG devices."""
        return [self._raw.migs[i].value.decode() for i in range(self._raw.n_migs)]

    @migs.setter
    def migs(self, uuids: Sequence[str]) -> None:
        for i, name in enumerate(uuids):
            self._raw.migs[i].value = name.encode()
        self._raw.n_migs = len(uuids)

    @property
    def power_watts(self) -> float:
        """What it draws at this moment."""
        return self._fake._library.fake_power_mw(self._fake._at, self.index, self._fake._now_ns()) / 1e3

    @power_watts.setter
    def power_watts(self, watts: float) -> None:
        self._schedule(watts, watts, 0, 0, 0)

    def pulses(self, high: float, low: float, period: float, duty: float = 0.5, start: float | None = None) -> None:
        """From now on draw `high` watts for the first `duty` of each period, then `low`; a period begins at `start`."""
        phase = self._fake.now() if start is None else start
        self._schedule(high, low, round(period * 1e9), round(period * duty * 1e9), round(phase * 1e9))

    def joules(self, start: float, end: float) -> float:
        """The truth: what it drew between two monotonic moments."""
        energy = self._fake._library.fake_energy_mj
        first, last = (energy(self._fake._at, self.index, round(t * 1e9)) for t in (start, end))
        return (last - first) / 1e3

    def fail(self, group: str, how: str = "lost") -> None:
        """Let a group of functions (GROUPS) fail from now on in this way (FAILURES), in every process."""
        if how == "stuck":
            self._raw.stuck_at_ns = self._fake._now_ns()
        self._raw.fail[GROUPS.index(group)] = FAILURES[how]

    def heal(self, *groups: str) -> None:
        """Let these groups, or all, work again."""
        for group in groups or GROUPS:
            self._raw.fail[GROUPS.index(group)] = self._raw.slow_ns[GROUPS.index(group)] = 0

    def slow(self, group: str, seconds: float) -> None:
        """Let each call of a group take this long, in real time, until it is healed."""
        self._raw.slow_ns[GROUPS.index(group)] = round(seconds * 1e9)

    def garbage(self, what: str, value: float, seconds: float) -> None:
        """For some time from now on the driver says this: watts for "power" and its samples, joules for "counter"."""
        now = self._fake._now_ns()
        setattr(self._raw, f"bad_{what}", _Garbage(now, now + round(seconds * 1e9), value * 1e3))

    def restart_counter(self) -> None:
        """The counter begins at 0, as after loading the driver."""
        self._raw.counter_zero_mj = self._fake._library.fake_energy_mj(self._fake._at, self.index, self._fake._now_ns())

    def step_counter(self, joules: float) -> None:
        """The counter jumps by this much; below 0 it steps back."""
        self._raw.counter_zero_mj -= joules * 1e3

    def lose(self) -> None:
        """It falls off the bus."""
        self.fail("all", "lost")

    def reads(self, group: str) -> int:
        """How often functions of this group were called, by anybody."""
        return int(self._raw.reads[GROUPS.index(group)])

    def lost_limits(self) -> list[float]:
        """Limits (64 at most) that were replaced by somebody who had not seen them: a race that NVML leaves open."""
        return [milliwatts / 1e3 for milliwatts in self._raw.lost_mw[: min(self._raw.n_lost, LOST)]]

    def _schedule(self, high: float, low: float, period_ns: int, on_ns: int, phase_ns: int) -> None:
        self._fake._library.fake_schedule(self._fake._at, self.index, high * 1e3, low * 1e3, period_ns, on_ns, phase_ns)


class FakeNvml:
    """The driver: its cards, its clock, its log of setters. `count` of the eight cards are plugged in."""

    def __init__(self, library: Path, path: Path, count: int = 2) -> None:
        self.library = library
        self.path = path
        self._library = _load(library)
        path.write_bytes(bytes(ctypes.sizeof(_State)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._state = _State.from_buffer(self._map)
        self._at = ctypes.byref(self._state)
        s = self._state
        s.size, s.n_cards, s.clock_ns, s.only_uid = ctypes.sizeof(_State), count, -1, os.geteuid()
        s.wall_base_ns, s.step_at_ns = time.time_ns() - time.monotonic_ns(), -(2**62)
        for index in range(CARDS):
            card = FakeCard(self, index)
            own = uuid.uuid5(uuid.NAMESPACE_OID, str(path))  # no other test's card has it
            card.uuid, card.name = f"GPU-{index:08x}{str(own)[8:]}", "NVIDIA H200 (not really)"
            card.bus_id, card.temperature, card.sm_mhz, card.cores = f"00000000:{index + 1:02X}:00.0", 35, 1980, 16896
            card.min_watts, card.max_watts, card.default_watts, card.limit_watts = 200, 700, 700, 700
            card.counter_period, card.sample_period, card.sample_latency, card.average_seconds = 0.1, 0.02, 0.046, 1
            card.samples_are_means, card.sample_type = True, "uint"
            card.power_watts = 124

    @property
    def count(self) -> int:
        """How many cards are plugged in, up to eight."""
        return int(self._state.n_cards)

    @count.setter
    def count(self, cards: int) -> None:
        self._state.n_cards = cards

    @property
    def cards(self) -> list[FakeCard]:
        return [FakeCard(self, index) for index in range(self.count)]

    @property
    def only_uid(self) -> int:
        """Besides root, the one user who may set (the test's own at first); -1: everybody."""
        return int(self._state.only_uid)

    @only_uid.setter
    def only_uid(self, uid: int) -> None:
        self._state.only_uid = uid

    def env(self, **more: str) -> dict[str, str]:
        """The environment for a process that shall find this driver, and these variables besides."""
        folders = [str(self.library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        found = {"FAKE_NVML_STATE": str(self.path), "LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders))}
        return {**os.environ, **found, **more}

    def calls(self) -> list[SetterCall]:
        """Setters that reached the driver, oldest first (the last 256), by any process."""
        total = self._state.n_calls
        return [self._call(self._state.calls[i % CALLS]) for i in range(max(0, total - CALLS), total)]

    def now(self) -> float:
        """Monotonic seconds on the driver's clock."""
        return self._now_ns() / 1e9

    def wall(self) -> float:
        """Wall-clock seconds as the driver stamps them now."""
        return self._library.fake_wall_ns(self._at, self._now_ns()) / 1e9

    def freeze(self, at: float | None = None) -> None:
        """Stop the driver's clock, for every process, here or at these monotonic seconds."""
        self._state.clock_ns = self._now_ns() if at is None else round(at * 1e9)

    def advance(self, seconds: float) -> None:
        """Move a stopped clock on."""
        if self._state.clock_ns < 0:
            raise ValueError("freeze() the clock before advancing it")
        self._state.clock_ns += round(seconds * 1e9)

    def step_wall(self, seconds: float) -> None:
        """The wall clock is set by this much: later samples are stamped so, those in the buffer stay as they are."""
        s = self._state
        s.wall_base_ns, s.step_ns, s.step_at_ns = s.wall_base_ns + s.step_ns, round(seconds * 1e9), self._now_ns()

    def _now_ns(self) -> int:
        return int(self._library.fake_now_ns(self._at))

    def _call(self, raw: _Call) -> SetterCall:
        function = FUNCTIONS[raw.function]
        value = raw.value / 1e3 if function == "set_limit" else bool(raw.value)
        return SetterCall(raw.pid, raw.uid, raw.card, function, value, raw.result, raw.time_ns / 1e9)


def build(folder: Path, without: Iterable[str] = ()) -> Path:
    """Compile the library into a folder, leaving these symbols out as an older driver would."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler (gcc) here, so the NVML library for the tests cannot be built")
    folder.mkdir(parents=True, exist_ok=True)
    hidden = "".join(f"{symbol};" for symbol in without)
    (folder / "symbols").write_text(f"{{ global: *; local: {hidden or '_none_;'} }};")
    library = folder / SONAME
    source = Path(__file__).with_name("libnvidia_ml.c")
    link = [f"-Wl,-soname,{SONAME}", f"-Wl,--version-script,{folder / 'symbols'}", "-lpthread"]
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, *link], check=True)
    return library


def python(script: str, env: dict[str, str]) -> str:
    """What a script prints in a process of its own."""
    return run_python("-c", script, env=env).stdout.strip()


def _load(library: Path) -> ctypes.CDLL:
    """Load it here, so that the binding, asking for the same name, gets it too; and make sure that it did."""
    ours = ctypes.CDLL(str(library))
    ctypes.CDLL(SONAME).fake_state_size  # noqa: B018 - a real driver has no such symbol: never touch one in a test
    ours.fake_state_size.restype = ours.fake_now_ns.restype = ours.fake_wall_ns.restype = c_int64
    ours.fake_energy_mj.restype = ours.fake_power_mw.restype = c_double
    state = POINTER(_State)
    ours.fake_now_ns.argtypes = [state]
    ours.fake_wall_ns.argtypes = [state, c_int64]
    ours.fake_energy_mj.argtypes = ours.fake_power_mw.argtypes = [state, c_int, c_int64]
    ours.fake_schedule.argtypes = [state, c_int, c_double, c_double, c_int64, c_int64, c_int64]
    assert ours.fake_state_size() == ctypes.sizeof(_State), "the structs in fake.py and state.h differ"
    return ours


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled once."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """A driver with two cards: in this process, and in others through `env()`."""
    fake = FakeNvml(nvml_library, tmp_path / "nvml.state")
    monkeypatch.setenv("FAKE_NVML_STATE", str(fake.path))
    monkeypatch.setenv("ZEUS_KEEPER", "private")  # in a container it would only observe, but no host has these cards
    monkeypatch.delenv("ZEUS_READ_ONLY", raising=False)
    yield fake
