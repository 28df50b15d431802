"""The `zeus` command; one file per command."""
