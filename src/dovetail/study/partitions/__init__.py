"""MIG slices that come and go: rules for where each is placed, and how many requests they serve."""
