"""Resources that answer from recorded history: cost, budgets, utilisation, and OpenCost's allocations."""
