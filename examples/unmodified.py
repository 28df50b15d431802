"""An ordinary training script that does not use Zeus: softmax regression on generated data, with numpy."""

import argparse

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.001)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

random = np.random.default_rng(options.seed)
centres = np.random.default_rng(0).normal(size=(10, 32))


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = random.integers(10, size=count)
    return centres[labels] + 1.5 * random.normal(size=(count, 32)), labels


inputs, labels = samples(20_000)
eval_inputs, eval_labels = samples(2_000)
weights = np.zeros((32, 10))

for epoch in range(1, options.epochs + 1):
    print(f"epoch {epoch}/{options.epochs}")
    order = random.permutation(len(inputs))
    for start in range(0, len(order), options.batch_size):
        batch = order[start : start + options.batch_size]
        scores = inputs[batch] @ weights
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(batch)), labels[batch]] -= 1
        weights -= options.lr * inputs[batch].T @ shares / len(batch)
    scores = eval_inputs @ weights
    chosen = scores[np.arange(len(scores)), eval_labels]
    loss = float(np.mean(np.log(np.exp(scores).sum(axis=1)) - chosen))
    print(f"val_loss={loss:.4f}")
