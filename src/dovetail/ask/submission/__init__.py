"""Work that is described by options: its GPUs, its objects, where it would start."""
