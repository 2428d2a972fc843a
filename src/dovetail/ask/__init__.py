"""Questions as people put them: which cluster, which shape, which changes; answers as structs."""
