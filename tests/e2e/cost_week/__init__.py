"""A week of GPUs in seconds on real parts: its cost and its use are those of a ledger kept by hand."""
