"""Processes that watch a cluster beside its scheduler: the recorder of history, the exporter of metrics."""
