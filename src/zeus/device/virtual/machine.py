"""Virtual GPUs, which run on any machine: a physical model behind the `Gpu` port, in real time or on a virtual clock.

A virtual card idles until a training step is reported: `step(gpus, batch_size)` runs one on it. (A command that `zeus
run` or `zeus measure` watches keeps it busy without that: see `zeus.device.virtual.watched`.) The step's duration
and power come from `zeus.device.virtual.physics` and depend on the current power limit. In real time the call waits
that long. On a virtual clock nothing waits: only such steps and `clock.sleep` move the time.

    ZEUS_GPU=virtual:v100                              one V100 in real time
    ZEUS_GPU=virtual:a40x4                             four A40
    ZEUS_GPU='virtual:v100?clock=virtual&load=neumf'   no waiting, a named workload
    ZEUS_GPU='virtual:v100?speed=20'                   real time, twenty times as fast
    ZEUS_GPU='virtual:v100?watched=idle'               idle while a command is watched that reports no steps
    ZEUS_GPU='virtual:v100?cpu=120&dram=15'            in a node whose CPU draws 120 W, and its memory 15 W
"""

from __future__ import annotations

import functools
import hashlib
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from zeus import settings
from zeus.device.clock import RealClock, VirtualClock
from zeus.device.cpu import CounterValue, CpuPackage
from zeus.device.gpu import Capability, Clock, Gpu, GpuSpec, PowerSample, check_limit, refuse_if_read_only
from zeus.device.ranks import own, rank
from zeus.device.virtual import presets
from zeus.device.virtual.physics import Card, Load, operate
from zeus.device.virtual.state import (
    MAX_CARDS,
    CardState,
    FileState,
    MachineState,
    MemoryState,
    state_file,
)
from zeus.errors import DeviceLost, InputError, Unsupported

_CAPABILITIES = frozenset(set(Capability) - {Capability.SAMPLES, Capability.PROCESSES})


@dataclass(frozen=True, slots=True)
class VirtualSpec:
    """The machine that the text after `virtual:` describes.

    >>> parse("a40x4?clock=virtual").count
    4
    """

    card: str
    count: int = 1
    virtual_clock: bool = False
    load: str = "compute-bound"
    speed: float = 1.0
    is_busy_when_watched: bool = True  # see `zeus.device.virtual.watched`
    cpu_watts: float = 0.0  # what the node's CPU draws; 0: it has no CPU whose energy can be read
    dram_watts: float = 0.0

    @property
    def kind(self) -> str:
        """Names the kind of machine in its state file. Other cards or another clock make another machine."""
        pace = "-virtual" if self.virtual_clock else f"-speed{self.speed:g}" if self.speed != 1 else ""
        return f"{self.card}x{self.count}{pace}"


def parse(text: str) -> VirtualSpec:
    """Read `v100`, `a40x4?clock=virtual&load=neumf`, and so on. Raises `InputError` for anything else."""
    cards, *options = re.split(r"[?&]", text.strip().lower())
    name, count = cards, 1
    if cards not in presets.card_names() and (m := re.fullmatch(r"(.+?)x(\d+)", cards)):
        name, count = m[1], int(m[2])
    presets.card(name)
    if not 1 <= count <= MAX_CARDS:
        raise InputError(f"ZEUS_GPU=virtual:{text}: asks for {count} cards. Ask for 1 to {MAX_CARDS}.")
    spec = VirtualSpec(name, count)
    for option in options:
        key, _, value = option.partition("=")
        number = float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else None
        match key, value:
            case "clock", "virtual" | "real":
                spec = replace(spec, virtual_clock=value == "virtual")
            case "load", _:
                presets.load(name, value)
                spec = replace(spec, load=value)
            case "speed", _ if number:
                spec = replace(spec, speed=number)
            case "watched", "busy" | "idle":
                spec = replace(spec, is_busy_when_watched=value == "busy")
            case "cpu", _ if number is not None:
                spec = replace(spec, cpu_watts=number)
            case "dram", _ if number is not None:
                spec = replace(spec, dram_watts=number)
            case _:
                raise InputError(
                    f"ZEUS_GPU=virtual:{text}: cannot read '{option}'. Options are clock=virtual, load=NAME, speed=N, "
                    "watched=idle, cpu=WATTS and dram=WATTS."
                )
    if spec.dram_watts and not spec.cpu_watts:
        raise InputError(f"ZEUS_GPU=virtual:{text}: dram=WATTS needs cpu=WATTS, because memory belongs to a CPU.")
    return spec


def virtual_gpus(text: str) -> list[VirtualGpu]:
    """The cards of `ZEUS_GPU=virtual:<text>`. Processes with the same ZEUS_VIRTUAL_STATE share them.

    Without it, they are private to this process, and to the children that it starts with `passed_on`.
    """
    spec = parse(text)
    return _shared_machine(spec, state_file(spec.kind)).gpus


def own_state() -> Path | None:
    """The file of this process's virtual cards. None if its cards are real."""
    kind, _, text = settings.gpu().partition(":")
    return state_file(parse(text).kind) if kind == "virtual" else None


def passed_on() -> dict[str, str]:
    """The variables with which a child sees the same virtual cards as this process. Empty if its cards are real."""
    state = own_state()
    return {} if state is None else {settings.virtual_state.variable: str(state)}


@functools.cache  # one machine per process, so that the script and its monitor share one clock and its timers
def _shared_machine(spec: VirtualSpec, path: Path) -> VirtualMachine:
    card = presets.card(spec.card)
    begin = 0.0 if spec.virtual_clock else RealClock(spec.speed).now()
    fresh = CardState(limit_watts=float(card.default_watts), since=begin, busy_until=begin)
    holder = FileState(path, spec.kind, MachineState([fresh] * spec.count))
    shared = StateClock if rank() is None else RankClock
    clock = shared(holder) if spec.virtual_clock else RealClock(spec.speed)
    load, cpus = presets.load(spec.card, spec.load), virtual_cpus(spec.cpu_watts, spec.dram_watts)
    watched = spec.load if spec.is_busy_when_watched and not spec.virtual_clock else ""
    return VirtualMachine(card, load, holder, clock, name=str(path), cpus=cpus, watched_load=watched)


class StateClock(VirtualClock):
    """A virtual clock kept in the machine's state, so that every process reads the same time."""

    def __init__(self, holder: MemoryState) -> None:
        super().__init__()
        self._holder = holder

    def now(self) -> float:
        return self._holder.read().now

    def _set(self, moment: float) -> None:
        with self._holder.change() as state:
            state.now = max(moment, state.now)


class RankClock(StateClock):
    """The clock of one of several ranks. Each rank has its own time; the shared clock is the latest of them.

    Ranks that wait for each other bring their clocks together with `rank_time` and `sync_rank_clock`.
    """

    def __init__(self, holder: MemoryState) -> None:
        super().__init__(holder)
        self._now = holder.read().now
        _rank_clocks.add(self)

    def now(self) -> float:
        return self._now

    def _set(self, moment: float) -> None:
        self._now = max(moment, self._now)
        super()._set(self._now)


_rank_clocks: weakref.WeakSet[RankClock] = weakref.WeakSet()


def rank_time() -> float | None:
    """The time on this rank's virtual clock. None if this process is no rank with such a clock."""
    return max((clock.now() for clock in _rank_clocks), default=None)


def sync_rank_clock(moment: float) -> None:
    """Move this rank's clock forward to `moment`, when the last rank arrived at a point where all wait."""
    for clock in list(_rank_clocks):
        clock.move_to(moment)


class ConstantPower:
    """The energy counter of a virtual CPU or its memory, which always draws the same power.

    >>> counter = ConstantPower(50.0)
    >>> counter.reading(10.0).joules - counter.reading(4.0).joules
    300.0
    """

    wrap_seconds = float("inf")

    def __init__(self, watts: float) -> None:
        self.watts = watts

    def reading(self, moment: float = 0.0) -> CounterValue:
        """Joules up to this moment on the machine's clock, however late it is asked."""
        return CounterValue(self.watts * moment)


def virtual_cpus(cpu_watts: float, dram_watts: float) -> list[CpuPackage]:
    """One CPU package with its memory. None if it draws nothing; no memory if that draws nothing."""
    dram = ConstantPower(dram_watts) if dram_watts else None
    return [CpuPackage(0, "virtual-package-0", ConstantPower(cpu_watts), dram)] if cpu_watts else []


class VirtualMachine:
    """Equal cards, their clock, and the workload that runs on them.

    >>> machine = VirtualMachine.in_memory("v100")
    >>> gpu = machine.gpus[0]
    >>> machine.run([0], seconds=10, watts=200)
    >>> gpu.energy(), machine.clock.now()
    (2000.0, 10.0)
    """

    def __init__(
        self,
        card: Card,
        load: Load,
        holder: MemoryState,
        clock: Clock,
        name: str,
        cpus: Sequence[CpuPackage] = (),
        watched_load: str = "",  # the name of the load under which a watched command runs; empty: none
    ) -> None:
        self.card = card
        self.load = load
        self.clock = clock
        self.holder = holder
        self.cpus = list(cpus)
        self.watched_load = watched_load
        self.gpus = [VirtualGpu(self, i, _uuid(f"{name}:{i}")) for i in range(len(holder.read().cards))]

    @classmethod
    def in_memory(
        cls,
        card: str,
        count: int = 1,
        load: str = "compute-bound",
        cpu_watts: float = 0.0,
        dram_watts: float = 0.0,
    ) -> VirtualMachine:
        """A machine on a virtual clock that only this process sees."""
        preset = presets.card(card)
        holder = MemoryState(MachineState([CardState(limit_watts=float(preset.default_watts))] * count))
        clock = StateClock(holder)
        cpus = virtual_cpus(cpu_watts, dram_watts)
        return cls(preset, presets.load(card, load), holder, clock, name=f"memory-{card}", cpus=cpus)

    def run(self, indices: Sequence[int], seconds: float, watts: float | Sequence[float]) -> None:
        """Keep these cards busy at this power for this long. Starts once earlier work on them is done."""
        draws = watts if isinstance(watts, Sequence) else [watts] * len(indices)
        with self.holder.change() as state:
            now = self.clock.now()
            begin = max([now, *(state.cards[index].busy_until for index in indices)])
            for index, draw in zip(indices, draws, strict=True):
                state.cards[index] = state.cards[index].busy(begin, seconds, draw, self.card.idle_watts)
        self.clock.sleep(begin - now + seconds)

    def step(self, indices: Sequence[int], batch_size: int) -> None:
        """Run one training step of this many samples on each card. The slowest card sets the pace."""
        cards = self.holder.read().cards
        done = [operate(self.card, self.load, batch_size, cards[i].limit_watts) for i in indices]
        self.run(indices, max(o.seconds for o in done), [o.watts for o in done])

    def change_card(self, index: int, change: Callable[[CardState], CardState]) -> None:
        with self.holder.change() as state:
            state.cards[index] = change(state.cards[index])

    def lose(self, index: int) -> None:
        """Make a card disappear, as a real one does when it falls off the bus."""
        self.change_card(index, lambda card: replace(card, lost=True))


class VirtualGpu:
    """One card of a virtual machine."""

    def __init__(self, machine: VirtualMachine, index: int, uuid: str) -> None:
        self.machine = machine
        self.index = index
        card = machine.card
        limits = (card.min_watts, card.max_watts, card.default_watts)
        self.spec = GpuSpec(uuid, card.name, "virtual", *limits, capabilities=_CAPABILITIES, exact=True)

    @property
    def clock(self) -> Clock:
        return self.machine.clock

    def _read(self) -> CardState:
        card = self.machine.holder.read().cards[self.index]
        if card.lost:
            raise DeviceLost(f"virtual card {self.index} ({self.spec.uuid}) has disappeared.")
        return card

    def energy(self) -> float:
        """Joules since the card was made."""
        return self.energy_at(self.clock.now())

    def energy_at(self, moment: float) -> float:
        """Joules up to a moment, which must not be before the card's last change."""
        return self._read().joules_at(moment, self.machine.card.idle_watts)

    def power(self) -> float:
        return float(self._read().watts_at(self.clock.now(), self.machine.card.idle_watts))

    def samples(self) -> list[PowerSample]:
        raise Unsupported(f"virtual card {self.index} keeps no power samples; its energy is exact.")

    def limit(self) -> float:
        return self._read().limit_watts

    def set_limit(self, watts: float) -> None:
        """Set the power limit. It applies from the next step on."""
        refuse_if_read_only(f"setting virtual card {self.index} to {watts:g} W", or_unclear=False)
        check_limit(self.spec, watts)
        self._read()
        self.machine.change_card(self.index, lambda card: replace(card, limit_watts=float(watts)))

    def persistence(self) -> bool:
        return self._read().persistence

    def set_persistence(self, on: bool) -> None:
        refuse_if_read_only(f"setting persistence mode of virtual card {self.index}", or_unclear=False)
        self._read()
        self.machine.change_card(self.index, lambda card: replace(card, persistence=on))

    def temperature(self) -> float:
        """Degrees Celsius, rising with the power drawn."""
        return 30.0 + 0.15 * self.power()

    def processes(self) -> list[int]:
        raise Unsupported(f"virtual card {self.index} does not know which processes use it.")


def step(gpus: Iterable[Gpu], batch_size: int) -> None:
    """Run a training step of this many samples on each virtual card. Real cards are left alone.

    If there is a card for each rank, a rank uses only its own.
    """
    machines: dict[VirtualMachine, list[int]] = {}
    for gpu in own(list(gpus), rank()):
        if isinstance(gpu, VirtualGpu):
            machines.setdefault(gpu.machine, []).append(gpu.index)
    for machine, indices in machines.items():
        machine.step(indices, batch_size)


def _uuid(name: str) -> str:
    return f"GPU-{UUID(bytes=hashlib.sha256(name.encode()).digest()[:16])}"
