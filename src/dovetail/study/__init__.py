"""Studies: recorded workloads replayed through placement policies, to compare their results."""
