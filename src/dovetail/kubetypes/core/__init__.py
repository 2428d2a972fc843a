"""Kinds of core v1 and its neighbours: pods, nodes, namespaces, quotas, leases, events."""
