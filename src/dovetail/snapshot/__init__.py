"""A cluster as files: taken from a live one, redacted, loaded back."""
