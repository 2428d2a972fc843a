"""Exact numbers, versions and durations, as Kubernetes writes them."""
