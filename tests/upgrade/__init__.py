"""Upgrades of the GPU stack: the machine, and the loop on a server in memory."""
