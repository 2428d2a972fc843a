"""Measures Dovetail beside the Go original, in one run, as ratios. `python -m bench` prints and stores them."""
