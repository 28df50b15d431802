"""Recurring jobs, wherever they are kept: in a store on this machine, or behind a service."""
