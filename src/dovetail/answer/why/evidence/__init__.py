"""What objects and events reveal about a pod that does not start: conditions, refusals, gates, a broken GPU stack."""
