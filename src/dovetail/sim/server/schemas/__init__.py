"""Structural schemas of CustomResourceDefinitions: what they drop, fill in and refuse."""
