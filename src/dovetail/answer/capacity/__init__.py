"""How much more work fits: copies of a pod put on a replica of the cluster, and the engine asked to place them."""
