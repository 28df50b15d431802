"""Every figure of the paper from one command: a small module each, what the paper says, and the report beside it."""
