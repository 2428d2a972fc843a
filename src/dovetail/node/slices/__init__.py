"""What the agent publishes: ResourceSlices and node labels, and the writers that keep them in the API server."""
