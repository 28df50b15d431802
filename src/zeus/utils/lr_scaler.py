"""Learning-rate scalers under the names that users know, over `zeus.training.learning_rate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeus.training.learning_rate import scale


@dataclass(frozen=True)
class SquareRootScaler:
    """For Adam, AdamW and other adaptive optimizers.

    >>> SquareRootScaler(bs=128, lr=0.1).compute_lr(512)
    0.2
    """

    bs: int
    lr: float
    rule: ClassVar[str] = "sqrt"

    def __post_init__(self) -> None:
        self.compute_lr(self.bs)  # refuses what cannot be scaled

    def compute_lr(self, new_bs: int) -> float:
        """The learning rate for another batch size."""
        return scale(self.lr, self.bs, new_bs, self.rule)


@dataclass(frozen=True)
class LinearScaler(SquareRootScaler):
    """For SGD.

    >>> LinearScaler(bs=128, lr=0.1).compute_lr(512)
    0.4
    """

    rule: ClassVar[str] = "linear"
