"""The callback protocol, by which a training loop reports its progress. Methods do nothing unless overridden."""

from __future__ import annotations

from collections.abc import Iterable


class Callback:
    """Is called by a training loop. Override the methods that you need."""

    def on_train_begin(self) -> None:
        """Called when training begins."""

    def on_train_end(self) -> None:
        """Called when training has ended."""

    def on_epoch_begin(self) -> None:
        """Called before the training steps of an epoch."""

    def on_epoch_end(self) -> None:
        """Called after the training steps of an epoch. Evaluation may follow."""

    def on_step_begin(self) -> None:
        """Called before a training step."""

    def on_step_end(self) -> None:
        """Called after a training step."""

    def on_evaluate(self, metric: float) -> None:
        """Called after an evaluation, with the validation metric."""

    def on_instruction_begin(self, name: str) -> None:
        """Called before an instruction of a pipeline stage, such as "forward". No callback of Zeus uses it."""

    def on_instruction_end(self, name: str) -> None:
        """Called after an instruction of a pipeline stage."""


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
        for callback in self.callbacks:
            callback.on_train_begin()

    def on_train_end(self) -> None:
        for callback in self.callbacks:
            callback.on_train_end()

    def on_epoch_begin(self) -> None:
        for callback in self.callbacks:
            callback.on_epoch_begin()

    def on_epoch_end(self) -> None:
        for callback in self.callbacks:
            callback.on_epoch_end()

    def on_step_begin(self) -> None:
        for callback in self.callbacks:
            callback.on_step_begin()

    def on_step_end(self) -> None:
        for callback in self.callbacks:
            callback.on_step_end()

    def on_evaluate(self, metric: float) -> None:
        for callback in self.callbacks:
            callback.on_evaluate(metric)

    def on_instruction_begin(self, name: str) -> None:
        for callback in self.callbacks:
            callback.on_instruction_begin(name)

    def on_instruction_end(self, name: str) -> None:
        for callback in self.callbacks:
            callback.on_instruction_end(name)
