"""What is wrong with a GPU, by a policy table: taints, advice, recovery after a hysteresis."""
