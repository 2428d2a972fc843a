"""Questions about the future, answered by running the engine on a copy of the cluster."""
