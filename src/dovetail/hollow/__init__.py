"""Fake kubelets for hollow nodes: node statuses, leases, and the life cycle of pods."""
