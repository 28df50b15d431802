"""Helpers that several tests share: test machines, servers, drivers and job histories."""
