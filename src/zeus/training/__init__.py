"""Integrations with training loops: the data loader of Listing 1 and callbacks for frameworks."""
