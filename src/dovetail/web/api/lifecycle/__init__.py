"""Resources about the GPU stack of nodes: its versions, its upgrades, and nodes under repair."""
