"""Wiring: one file per process, the only place that knows clocks and where things are kept."""
