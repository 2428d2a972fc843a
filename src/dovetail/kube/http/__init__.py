"""Requests to one API server: transport, TLS, paths, failures."""
