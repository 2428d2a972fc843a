"""The older device plugin interface, for nodes that do not use Dynamic Resource Allocation yet."""
