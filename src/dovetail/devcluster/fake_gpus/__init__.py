"""GPUs that exist in a directory: unmodified NVIDIA programs find them through a fake libnvidia-ml.so.1."""
