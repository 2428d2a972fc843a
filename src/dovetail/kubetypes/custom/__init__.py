"""Kinds of dovetail.dev/v1alpha1: Queue, Topology, Intent."""
