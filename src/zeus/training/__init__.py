"""Training loops: the data loader of Listing 1, callbacks for frameworks, several ranks."""
