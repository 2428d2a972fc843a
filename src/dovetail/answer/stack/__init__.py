"""The GPU stack from Kubernetes to CUDA: what runs, what fits together, what an upgrade would break."""
