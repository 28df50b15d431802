"""The load of a command that only Zeus watches: it trains on no GPU, so nobody reports its steps to a virtual card.

While such a command runs, its virtual cards draw what the model says for the card's load, at the command's batch size
and the power limit in force. The time is the command's own: a limit changes the power, but slows nothing down. A
command that reports a step to a card ends the modelled load of that card for good, because it knows better.

The load is renewed several times a second and ends soon after its last renewal. So it does not outlive a watcher that
is killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType

from zeus.device.clock import RealClock
from zeus.device.gpu import Gpu, Ticker
from zeus.device.virtual.machine import VirtualGpu, VirtualMachine
from zeus.device.virtual.physics import operate
from zeus.device.virtual.state import CardState

RENEW_SECONDS, HELD_SECONDS = 0.1, 0.3  # of real time, whatever the speed of the cards
MEASURED_BATCH_SIZE = 64  # of a command whose batch size nobody said


class WatchedLoad:
    """Keeps virtual cards busy inside a `with` block. Real cards, and cards on a virtual clock, are left alone.

    Args:
        gpus: The cards that the command uses.
        batch_size: Samples in one step of the command on each card.
    """

    def __init__(self, gpus: Iterable[Gpu], batch_size: int) -> None:
        self._batch_size = max(1, batch_size)
        self._renewals: list[tuple[Ticker, _Renewal]] = []
        self._cards: dict[VirtualMachine, list[int]] = {}
        for gpu in gpus:
            if isinstance(gpu, VirtualGpu) and gpu.machine.watched_load:
                self._cards.setdefault(gpu.machine, []).append(gpu.index)

    def __enter__(self) -> WatchedLoad:
        for machine, indices in self._cards.items():
            assert isinstance(machine.clock, RealClock)
            renewal = _Renewal(machine, machine.clock.speed, indices, self._batch_size)
            renewal.renew()
            self._renewals.append((machine.clock.every(RENEW_SECONDS * machine.clock.speed, renewal.renew), renewal))
        return self

    def renew(self) -> None:
        """Draw what the limit in force allows from now on. Otherwise a new limit is noticed after 0.1 s."""
        for _, renewal in self._renewals:
            renewal.renew()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        while self._renewals:
            ticker, renewal = self._renewals.pop()
            ticker.stop()
            renewal.end()


class _Renewal:
    """The load of one machine's cards."""

    def __init__(self, machine: VirtualMachine, speed: float, indices: list[int], batch_size: int) -> None:
        self._machine, self._batch_size = machine, batch_size
        self._held_seconds = HELD_SECONDS * speed
        cards = machine.holder.read().cards
        self._last = {index: cards[index] for index in indices}  # as this load last saw or left them

    def renew(self) -> None:
        self._set(self._held_seconds)

    def end(self) -> None:
        self._set(0.0)

    def _set(self, seconds: float) -> None:
        machine = self._machine
        with machine.holder.change() as box:
            now = machine.clock.now()
            for index, last in list(self._last.items()):
                card = box.state.cards[index]
                if _work(card) != _work(last):  # somebody reported a step
                    del self._last[index]
                    continue
                watts = operate(machine.card, machine.load, self._batch_size, card.limit_watts).watts
                used = card.joules_at(now, machine.card.idle_watts)
                busy = replace(card, joules=used, since=now, busy_watts=watts, busy_until=now + seconds)
                box.state = box.state.with_card(index, busy)
                self._last[index] = busy


def _work(card: CardState) -> tuple[float, float]:
    return card.since, card.busy_until


def load_name(gpus: Iterable[Gpu]) -> str | None:
    """The load under which a watched command runs on these cards. None if nothing is modelled."""
    names = {gpu.machine.watched_load for gpu in gpus if isinstance(gpu, VirtualGpu)} - {""}
    return ", ".join(sorted(names)) or None


def notice(load: str, batch_size: str) -> str:
    """A line for whoever watches a command under a modelled load."""
    return (
        f"virtual GPU: the power of the command is modelled ({load}, {batch_size}). A power limit changes its power, "
        "not its time. To leave the GPU idle, add watched=idle to ZEUS_GPU."
    )
