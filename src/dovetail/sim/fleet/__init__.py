"""A fleet described in a few lines, and the objects it would publish."""
