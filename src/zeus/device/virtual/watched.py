"""The load of a command that only Zeus watches: it trains on no GPU, so nobody reports its steps to a virtual card.

While such a command runs, its virtual cards draw what the model says for the card's load, at the command's batch size
and the power limit in force. The time is the command's own: a limit changes the power, but slows nothing down. A
command that reports a step to a card ends the modelled load of that card for good, because it knows better.

The load is renewed several times a second and ends soon after its last renewal. So it does not outlive a watcher that
is killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from zeus.device.gpu import Gpu, Ticker
from zeus.device.virtual.machine import VirtualGpu
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
        self._gpus = [gpu for gpu in gpus if isinstance(gpu, VirtualGpu) and gpu.machine.watched_load]
        self._work: dict[VirtualGpu, tuple[float, float]] = {}  # of each card, as this load last saw or left it
        self._tickers: list[Ticker] = []

    def __enter__(self) -> WatchedLoad:
        self._work = {gpu: _work(gpu.machine.holder.read().cards[gpu.index]) for gpu in self._gpus}
        self.renew()
        clocks = {gpu.clock for gpu in self._gpus}
        self._tickers = [clock.every(RENEW_SECONDS * clock.speed, self.renew) for clock in clocks]
        return self

    def renew(self) -> None:
        """Draw what the limit in force allows from now on. Otherwise a new limit is noticed after 0.1 s."""
        self._hold(HELD_SECONDS)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for ticker in self._tickers:
            ticker.stop()
        self._hold(0.0)

    def _hold(self, seconds: float) -> None:
        for gpu, last in list(self._work.items()):
            machine = gpu.machine
            with machine.holder.change() as state:
                card = state.cards[gpu.index]
                if _work(card) != last:  # somebody reported a step
                    del self._work[gpu]
                    continue
                watts = operate(machine.card, machine.load, self._batch_size, card.limit_watts).watts
                held = seconds * gpu.clock.speed
                state.cards[gpu.index] = card = card.busy(gpu.clock.now(), held, watts, machine.card.idle_watts)
                self._work[gpu] = _work(card)


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
