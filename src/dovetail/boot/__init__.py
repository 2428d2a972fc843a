"""Wiring: one file per process, the only place that chooses clocks, transports and files."""
