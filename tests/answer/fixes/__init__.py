"""Fixes for pods that wait."""
