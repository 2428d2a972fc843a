"""Whole upgrades of a fleet on a real API server: players, lives of the process, a checker of the history."""
