"""Writes a placement: claims, volumes, then the binding; retries until the server answered."""
