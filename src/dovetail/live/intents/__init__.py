"""Stores planned writes and promises on the API server, and restores them after a change of leader."""
