"""A Hugging Face Trainer at its best power limit, with its energy in the logs. Two lines are for Zeus.

Run it on a virtual GPU:

ZEUS_GPU='virtual:v100?clock=virtual' python examples/huggingface_trainer.py
"""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
from zeus.training.huggingface import EnergyCallback

torch.manual_seed(0)
words = torch.randint(0, 100, (1600, 8))
data = [{"input_ids": one, "labels": int(one[0] > 50)} for one in words]
config = BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)

trainer = Trainer(
    BertForSequenceClassification(config),
    TrainingArguments(
        output_dir="build/huggingface",
        per_device_train_batch_size=32,
        num_train_epochs=3,
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,  # the virtual GPU cannot compute
    ),
    train_dataset=data,
    callbacks=[HFGlobalPowerLimitOptimizer(ZeusMonitor()), EnergyCallback()],
)
trainer.train()
