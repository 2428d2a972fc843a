"""Questions about the GPU stack and its upgrades, put to a cluster or a snapshot."""
