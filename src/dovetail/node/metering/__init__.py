"""Metrics of a node's devices: who holds them, how much they use, and the text that Prometheus reads."""
