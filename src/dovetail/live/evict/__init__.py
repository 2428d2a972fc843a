"""Evicts victims, nominates nodes, and reserves room for pods that move."""
