"""The service over a store: routes for training scripts, and the page where a team sees its jobs get cheaper."""
