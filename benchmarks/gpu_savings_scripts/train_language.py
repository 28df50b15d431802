"""A small language model, trained by the Hugging Face Trainer with Zeus's callbacks under `zeus run`.

The language is generated: each text has one of four subjects, and a subject says which words follow a word. The
language is the same each time; each seed draws other texts. Without a GPU the model is small, so that the script can be
tried.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback

from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
from zeus.training.huggingface import BatchSizeCallback, training_arguments

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=7e-4)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--scale", type=float, default=1.0, help="multiplies the texts of an epoch")
options = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
on_gpu = device.type == "cuda"
WORDS, SUBJECTS, FOLLOWERS = 256, 4, 8
LENGTH = 128 if on_gpu else 32
EVALUATED_AT_ONCE = 256


class Texts(torch.utils.data.Dataset[dict[str, Tensor]]):
    """An epoch's texts begin at `begin`: as in a large corpus, each epoch has others."""

    def __init__(self, count: int, epoch: int) -> None:
        subject = torch.randint(SUBJECTS, (count,), device=device)
        words = [torch.randint(WORDS, (count,), device=device)]
        for _ in range(LENGTH - 1):
            which = torch.multinomial(shares, count, replacement=True)
            words.append(followers[subject, words[-1], which])
        self.texts = torch.stack(words, 1).cpu()
        self.epoch, self.begin = epoch, 0

    def __len__(self) -> int:
        return self.epoch

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        text = self.texts[(self.begin + index) % len(self.texts)]
        return {"input_ids": text, "labels": text}


class Progress(TrainerCallback):  # type: ignore[misc]
    """Moves on in the corpus. Prints what an evaluation found, and when."""

    def on_train_begin(self, *given: Any, **more: Any) -> None:
        self.began = time.perf_counter()

    def on_epoch_begin(self, args: Any, state: Any, *given: Any, **more: Any) -> None:
        train_set.begin = round(state.epoch) * len(train_set)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **more: Any) -> None:
        passed = time.perf_counter() - self.began
        print(f"epoch {round(state.epoch)}: loss={metrics['eval_loss']:.4f} after {passed:.2f} s", flush=True)


same = torch.Generator().manual_seed(0)
followers = torch.randint(WORDS, (SUBJECTS, WORDS, FOLLOWERS), generator=same).to(device)
shares = (1.0 / torch.arange(1, FOLLOWERS + 1)).to(device)
torch.manual_seed(options.seed)
epoch = max(256, round(2_400 * options.scale))
train_set, eval_set = Texts(20 * epoch, epoch), Texts(1_000, 1_000)
width, layers = (384, 4) if on_gpu else (64, 2)
config = GPT2Config(
    vocab_size=WORDS,
    n_positions=LENGTH,
    n_embd=width,
    n_layer=layers,
    n_head=width // 32,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=0,
    eos_token_id=0,
)
with tempfile.TemporaryDirectory() as folder:
    arguments: Any = training_arguments(
        output_dir=folder,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=EVALUATED_AT_ONCE,
        num_train_epochs=options.epochs,
        learning_rate=options.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=20,
        eval_strategy="epoch",
        prediction_loss_only=True,
        bf16=on_gpu,
        use_cpu=not on_gpu,
        dataloader_pin_memory=on_gpu,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=options.seed,
    )
    callbacks = [HFGlobalPowerLimitOptimizer(ZeusMonitor()), BatchSizeCallback("eval_loss"), Progress()]
    model = GPT2LMHeadModel(config)
    Trainer(model, arguments, train_dataset=train_set, eval_dataset=eval_set, callbacks=callbacks).train()
