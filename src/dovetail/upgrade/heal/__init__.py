"""Healing of GPUs: from a fault to the gentlest remedy that may cure it, with limits and reasons."""
