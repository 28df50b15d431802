"""Learning-rate scalers under the names of the existing package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeus.training.learning_rate import scale


@dataclass(frozen=True)
class SquareRootScaler:
    """Scales the learning rate for Adam, AdamW and other adaptive optimizers.

    >>> SquareRootScaler(bs=128, lr=0.1).compute_lr(512)
    0.2
    """

    bs: int
    lr: float
    rule: ClassVar[str] = "sqrt"

    def __post_init__(self) -> None:
        self.compute_lr(self.bs)  # raises if the arguments are not valid

    def compute_lr(self, new_bs: int) -> float:
        """The learning rate for batch size `new_bs`. Raises InputError if it is not a whole number of at least 1."""
        return scale(self.lr, self.bs, new_bs, self.rule)


@dataclass(frozen=True)
class LinearScaler(SquareRootScaler):
    """Scales the learning rate for SGD.

    >>> LinearScaler(bs=128, lr=0.1).compute_lr(512)
    0.4
    """

    rule: ClassVar[str] = "linear"
