"""A cluster in memory: a fleet described in a few lines, the objects it shows, and where they are kept."""
