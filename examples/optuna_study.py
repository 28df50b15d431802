"""Search for hyperparameters with Optuna: accuracy against cost, each trial at its best power limit.

Run it on a virtual GPU:

ZEUS_GPU='virtual:v100?clock=virtual' python examples/optuna_study.py
"""

import optuna
import torch
from torch.utils.data import DataLoader, TensorDataset

from zeus.tuning.optuna import OptunaTrial

torch.manual_seed(0)
torch.set_num_threads(1)  # the model is tiny
points, direction = torch.randn(8800, 20), torch.randn(20, 1)
labels = (points @ direction > 0).float()
train_set = TensorDataset(points[:8000], labels[:8000])


def objective(trial: optuna.Trial) -> tuple[float, float]:
    rate = trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
    batch_size = trial.suggest_categorical("batch_size", [64, 256])
    epochs = trial.suggest_int("epochs", 2, 8)
    torch.manual_seed(trial.number)
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    with OptunaTrial(trial, model="linear", batch_size=batch_size) as measured:
        for _ in range(epochs):
            for inputs, targets in measured.steps(DataLoader(train_set, batch_size, shuffle=True)):
                optimizer.zero_grad()
                torch.nn.functional.binary_cross_entropy_with_logits(model(inputs), targets).backward()
                optimizer.step()
            if measured.exceeds(beta=4):
                raise optuna.TrialPruned
        accuracy = ((model(points[8000:]) > 0) == labels[8000:]).float().mean().item()
    return accuracy, measured.cost


study = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=10)

for best in sorted(study.best_trials, key=lambda trial: trial.values[1]):
    accuracy, cost = best.values
    print(f"trial {best.number}: accuracy {accuracy:.3f}, cost {cost:.0f} J, {best.params}")
