"""The node agent: finds a node's NVIDIA GPUs, publishes them, prepares claims on them and watches their health."""
