"""Clusters as files: snapshots of ours, and whatever objects there are."""
