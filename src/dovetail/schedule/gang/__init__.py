"""Pods that start together: which of them are next, and where they go."""
