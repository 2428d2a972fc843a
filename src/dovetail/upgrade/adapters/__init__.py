"""Ways to bring one node to a target: the GPU Operator, the MIG label, node images, our own node agent."""
