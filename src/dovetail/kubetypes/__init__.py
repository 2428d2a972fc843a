"""Kubernetes objects as frozen structs, and one registry of kinds. Decides nothing about scheduling."""
