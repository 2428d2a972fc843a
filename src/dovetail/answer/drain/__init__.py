"""What a drain of a node would do to its pods, as kubectl and the API server would do it."""
