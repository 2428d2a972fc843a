"""Volumes, their claims and classes, and in-tree volumes as their CSI drivers see them."""
