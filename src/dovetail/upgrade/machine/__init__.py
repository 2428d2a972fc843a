"""What an upgrade does next, as a pure function of its object and of what was read of the cluster."""
