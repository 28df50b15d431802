"""Search for hyperparameters with Ray Tune at the lowest cost, each trial at its best power limit.

Run it on a virtual GPU:

ZEUS_GPU='virtual:v100?clock=virtual' python examples/ray_tune_search.py
"""

import ray
from ray import tune

from zeus.tuning.ray_tune import CostStopper, RayTrial

TARGET = 0.97


def train(config):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is tiny
    points, direction = torch.randn(8800, 20), torch.randn(20, 1)
    labels = (points @ direction > 0).float()
    train_set, batch_size = TensorDataset(points[:8000], labels[:8000]), config["batch_size"]
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    with RayTrial(model="linear", batch_size=batch_size) as measured:
        for _ in range(10):
            for inputs, targets in measured.steps(DataLoader(train_set, batch_size, shuffle=True)):
                optimizer.zero_grad()
                torch.nn.functional.binary_cross_entropy_with_logits(model(inputs), targets).backward()
                optimizer.step()
            accuracy = ((model(points[8000:]) > 0) == labels[8000:]).float().mean().item()
            measured.report({"accuracy": accuracy})
            if accuracy >= TARGET:
                return


if __name__ == "__main__":
    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False)  # Ray does not see the virtual GPU by itself
    space = {"learning_rate": tune.grid_search([1e-3, 1e-2]), "batch_size": tune.grid_search([64, 256])}
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1, "gpu": 1}),
        param_space=space,
        run_config=tune.RunConfig(stop=CostStopper(beta=2), verbose=0),
    )
    results = tuner.fit()
    reached = [one for one in results if one.metrics["accuracy"] >= TARGET]
    for one in sorted(reached, key=lambda one: one.metrics["zeus/cost"]):
        print(f"accuracy {one.metrics['accuracy']:.3f}, cost {one.metrics['zeus/cost']:.0f} J, {one.config}")
    ray.shutdown()
