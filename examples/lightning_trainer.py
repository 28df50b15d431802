"""A Lightning Trainer at its best power limit, with its energy in the logs. One callback is for Zeus.

Run it on a virtual GPU:

ZEUS_GPU='virtual:v100?clock=virtual' python examples/lightning_trainer.py
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.training.lightning import EnergyCallback


class Line(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self.line(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


points = torch.randn(1600, 4)
data = TensorDataset(points, points.sum(1, keepdim=True))
energy = EnergyCallback(optimizer=GlobalPowerLimitOptimizer)
trainer = Trainer(
    max_epochs=3,
    accelerator="cpu",  # the virtual GPU cannot compute
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=[energy],
)
trainer.fit(Line(), DataLoader(data, batch_size=32))
for name, value in trainer.logged_metrics.items():
    print(f"{name} {value:.1f}")
