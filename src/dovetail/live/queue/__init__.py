"""The scheduling queue: which pending pods are tried now, and which change wakes a parked one."""
