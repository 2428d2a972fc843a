"""Numbers about ourselves."""
