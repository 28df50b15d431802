"""The tutorial's script before Zeus: train a small classifier until it is 97 % accurate."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.randn(4000, 20)
labels = (inputs @ torch.randn(20, 1) > 0).float()
train_set = TensorDataset(inputs[:3200], labels[:3200])

model = torch.nn.Linear(20, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
loader = DataLoader(train_set, batch_size=32, shuffle=True)

for epoch in range(60):
    for batch, target in loader:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracy = ((model(inputs[3200:]) > 0) == labels[3200:]).float().mean().item()
    print(f"epoch {epoch + 1} done, accuracy {accuracy:.3f}")
    if accuracy >= 0.97:
        break
