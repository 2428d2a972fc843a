"""Causes in one sentence each: of nodes, devices, other pods, gangs, queues and rules about evictions."""
