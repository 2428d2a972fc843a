"""NVIDIA's own node programs on fake hardware: what they do, and where the node agent differs."""
