"""Recurring jobs, whether they are kept in a local store or behind a service."""
