"""The callback protocol, by which a training loop reports its progress. Methods do nothing unless overridden."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


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


def _on_each(name: str) -> Callable[..., None]:
    def call(self: CallbackSet, *arguments: Any, **named: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, name)(*arguments, **named)

    return call


for _name in [name for name in vars(Callback) if name.startswith("on_")]:
    setattr(CallbackSet, _name, _on_each(_name))
