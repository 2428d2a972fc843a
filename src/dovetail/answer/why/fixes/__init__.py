"""Changes with which a pod that waits would start: minimal ones, each tried on a replica before it is shown."""
