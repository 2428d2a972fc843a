"""Queues as a tree: which workloads may use which, what each resource name means, what their status holds."""
