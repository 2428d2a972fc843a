"""Tests of what the agent publishes."""
