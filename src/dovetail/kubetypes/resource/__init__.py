"""Kinds of resource.k8s.io/v1: slices, classes, claims, taint rules."""
