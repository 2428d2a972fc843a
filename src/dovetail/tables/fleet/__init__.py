"""The picture of all GPUs of a cluster: nodes, GPUs, their parts and who holds them."""
