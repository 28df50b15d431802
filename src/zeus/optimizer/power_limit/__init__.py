"""The power limit (§4.2)."""
