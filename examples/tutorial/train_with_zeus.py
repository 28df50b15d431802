"""The tutorial's script with Zeus: four lines are new, and two are gone."""

import torch
from torch.utils.data import TensorDataset

from zeus import ZeusDataLoader

torch.manual_seed(0)
inputs = torch.randn(4000, 20)
labels = (inputs @ torch.randn(20, 1) > 0).float()
train_set = TensorDataset(inputs[:3200], labels[:3200])

model = torch.nn.Linear(20, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
loader = ZeusDataLoader(train_set, batch_size=32, max_epochs=60, target_metric=0.97, shuffle=True)

for epoch in loader.epochs():  # ends at the target
    for batch, target in loader:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracy = ((model(inputs[3200:]) > 0) == labels[3200:]).float().mean().item()
    print(f"epoch {epoch + 1} done, accuracy {accuracy:.3f}")
    loader.report_metric(accuracy)
