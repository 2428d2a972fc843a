"""Which devices serve the claims of a pod on one node: exact, explained, and chosen well. Never writes."""
