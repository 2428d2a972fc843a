"""Async orchestration: what happens when, on top of pure decisions and the ports."""
