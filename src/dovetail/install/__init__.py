"""The chart, its values, and putting an installation onto a cluster or off it."""
