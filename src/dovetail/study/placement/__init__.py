"""Placement policies as the benchmark runs them: the state of a cluster in arrays, and one module per rule."""
