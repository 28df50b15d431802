"""What turns the two knobs: the power limit (§4.2) and the batch size (§4.3-4.4)."""
