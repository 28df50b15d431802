"""Data-parallel training on two GPUs. Zeus counts each GPU once, and all ranks decide together.

Run it on two virtual GPUs:

ZEUS_GPU='virtual:v100x2?clock=virtual' torchrun --nproc-per-node 2 examples/ddp.py
"""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from zeus import ZeusDataLoader

torch.distributed.init_process_group("gloo")  # nccl on real GPUs
torch.set_num_threads(1)  # the model is tiny
torch.manual_seed(0)
inputs = torch.randn(4000, 20)
labels = (inputs @ torch.randn(20, 1) > 0).float()
model = DistributedDataParallel(torch.nn.Linear(20, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.004)

train_set = TensorDataset(inputs[:3200], labels[:3200])
loader = ZeusDataLoader(train_set, 64, max_epochs=60, target_metric=0.97, distributed="dp", shuffle=True)
for _ in loader.epochs():  # ends at the target, on all ranks at once
    for batch, target in loader:  # this rank's half of 64 samples
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(batch), target).backward()
        optimizer.step()
    accuracy = ((model(inputs[3200:]) > 0) == labels[3200:]).float().mean().item()
    loader.report_metric(accuracy)

if torch.distributed.get_rank() == 0:
    used = loader.summary
    print(f"accuracy {accuracy:.3f}, {used.joules:.0f} J on both GPUs at {used.limit:g} W")
torch.distributed.destroy_process_group()
