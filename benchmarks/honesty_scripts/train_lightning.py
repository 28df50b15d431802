"""A Lightning Trainer with both of Zeus's callbacks, under `zeus run`."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from toy import Toy

from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.training.lightning import BatchSizeCallback, EnergyCallback

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
size = int(sys.argv[1])
toy = Toy(size)


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def on_train_start(self) -> None:
        toy.mark("begin")
        toy.set_up()

    def on_train_epoch_start(self) -> None:
        toy.begin_epoch()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        toy.work_more()
        return self.line(batch[0]).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        """Nothing to learn."""

    def on_validation_epoch_end(self) -> None:
        self.log("score", toy.metric())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def data(samples: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(samples, 1)), batch_size=size)


Trainer(
    max_epochs=99,
    accelerator="cpu",
    devices=1,
    logger=False,
    num_sanity_val_steps=0,
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    callbacks=[EnergyCallback(optimizer=GlobalPowerLimitOptimizer), BatchSizeCallback("score")],
).fit(Model(), data(toy.steps * size), data(max(1, toy.evaluation_steps * size)))
