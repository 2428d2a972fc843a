"""Converts other schedulers' objects into ours, and records the fate of every field."""
