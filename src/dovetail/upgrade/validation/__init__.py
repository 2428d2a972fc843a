"""Validation of a node before it takes work again: checks as data, facts in, a verdict out. Pure."""
