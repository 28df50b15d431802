"""The paper's Listing 1: train a small classifier on generated data with ZeusDataLoader.

Run it on a virtual GPU:

ZEUS_GPU='virtual:v100?clock=virtual' python examples/listing1.py
"""

import torch
from torch.utils.data import TensorDataset

torch.manual_seed(0)
points, direction = torch.randn(2000, 20), torch.randn(20, 1)
labels = (points @ direction > 0).float()
train_set = TensorDataset(points[:1600], labels[:1600])
eval_set = TensorDataset(points[1600:], labels[1600:])
model = torch.nn.Linear(20, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
batch_size, max_epochs, target_metric = 32, 60, 0.97

# fmt: off
from zeus import ZeusDataLoader  # noqa: E402

train_loader = ZeusDataLoader(
    train_set, batch_size, max_epochs, target_metric)
eval_loader = ZeusDataLoader(eval_set, batch_size)

for epoch in train_loader.epochs(): # may early stop
    for batch in train_loader:
        # Learn from batch
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(batch[0]), batch[1]).backward()
        optimizer.step()
    correct = 0
    for batch in eval_loader:
        # Evaluate on batch
        correct += int(((model(batch[0]) > 0) == batch[1]).sum())
    validation_metric = correct / len(eval_set)
    train_loader.report_metric(validation_metric)
