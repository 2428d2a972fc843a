"""Which pods are evicted for which job: rules, search and bounds, tried on a transaction before any eviction."""
