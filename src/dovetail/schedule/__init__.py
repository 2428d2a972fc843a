"""Who runs where and who waits: decide(world, policy, now, budget) -> Plan. Plain functions over the World."""
