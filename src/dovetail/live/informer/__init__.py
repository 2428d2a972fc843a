"""Keeps the World equal to what the API server last sent."""
