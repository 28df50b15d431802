"""The optimizers of the power limit (§4.2) and of the batch size (§4.3-4.4)."""
