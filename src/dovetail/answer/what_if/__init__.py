"""What a change of nodes, queues, devices or work would do: the cluster as it is beside the one with the changes."""
