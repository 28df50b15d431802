"""The callback protocol: what a training loop tells those who listen. All methods do nothing unless overridden."""

from __future__ import annotations

from collections.abc import Iterable


class Callback:
    """Listens to a training loop."""

    def on_train_begin(self) -> None:
        """Training begins."""

    def on_train_end(self) -> None:
        """Training has ended."""

    def on_epoch_begin(self) -> None:
        """An epoch's training steps begin."""

    def on_epoch_end(self) -> None:
        """An epoch's training steps have ended; evaluation may follow."""

    def on_step_begin(self) -> None:
        """A training step begins."""

    def on_step_end(self) -> None:
        """A training step has ended."""

    def on_evaluate(self, metric: float) -> None:
        """The model was evaluated, with this validation metric."""


class CallbackSet(Callback):
    """Several callbacks, called in order.

    >>> class Count(Callback):
    ...     steps = 0
    ...     def on_step_end(self) -> None:
    ...         self.steps += 1
    >>> a, b = Count(), Count()
    >>> CallbackSet([a, b]).on_step_end()
    >>> a.steps, b.steps
    (1, 1)
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = list(callbacks)

    def on_train_begin(self) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_train_begin()

    def on_train_end(self) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_train_end()

    def on_epoch_begin(self) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_epoch_end()

    def on_step_begin(self) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_step_begin()

    def on_step_end(self) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_step_end()

    def on_evaluate(self, metric: float) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_evaluate(metric)
