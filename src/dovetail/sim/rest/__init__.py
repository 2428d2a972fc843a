"""The HTTP front of the in-memory API server: Kubernetes' REST API on loopback."""
