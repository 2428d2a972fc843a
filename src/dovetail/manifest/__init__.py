"""YAML and JSON text to objects, or to problems with their places."""
