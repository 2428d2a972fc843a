"""The devices of one node as bit positions: which match, what counters and capacities remain."""
