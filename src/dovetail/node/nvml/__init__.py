"""The agent's boundary to the hardware: one NVML session, discovery, MIG control, events and health readings."""
