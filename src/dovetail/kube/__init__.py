"""A real Kubernetes API server: configuration, credentials, requests, watching, writing."""
