"""The one boundary to the hardware: NVML through nvidia-ml-py, and nvidia-smi where NVML has no call."""
