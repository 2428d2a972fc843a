"""Answers of the engine as text and rows for people: why, when, what-if, capacity. Never print."""
