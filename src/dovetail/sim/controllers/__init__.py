"""The workload controllers of the cluster in memory: they turn Deployments, Jobs and their kin into pods."""
