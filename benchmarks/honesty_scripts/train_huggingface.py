"""A Hugging Face Trainer with both of Zeus's callbacks, under `zeus run`."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from toy import Toy
from transformers import Trainer, TrainerCallback, TrainingArguments

from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
from zeus.training.huggingface import BatchSizeCallback

size = int(sys.argv[1])
toy = Toy(size)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            toy.work_more()
        found = self.line(x)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


class Data(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, length: int) -> None:
        self.length = length
        self.item = {"x": torch.ones(1), "labels": torch.ones(1)}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.item


class Story(TrainerCallback):
    """Set-up once the training has begun, and what befalls an epoch."""

    def on_train_begin(self, *told: Any, **more: Any) -> None:
        toy.mark("begin")
        toy.set_up()

    def on_epoch_begin(self, *told: Any, **more: Any) -> None:
        toy.begin_epoch()


options = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=size,
    per_device_eval_batch_size=size,
    num_train_epochs=99,
    eval_strategy="epoch",
    logging_strategy="no",
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    dataloader_pin_memory=False,
)
callbacks = [HFGlobalPowerLimitOptimizer(ZeusMonitor()), BatchSizeCallback("eval_accuracy"), Story()]
Trainer(
    Model(),
    options,
    train_dataset=Data(toy.steps * size),
    eval_dataset=Data(max(1, toy.evaluation_steps * size)),  # it does not evaluate on nothing
    compute_metrics=lambda _: {"accuracy": toy.metric()},
    callbacks=callbacks,
).train()
