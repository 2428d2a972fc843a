"""Wiring: what a process is made of."""
