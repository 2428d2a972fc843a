"""What exists: quantities, devices, claims, pods, nodes and the rules their fields obey. Frozen data, no decisions."""
