"""A cluster on one screen: GPUs by type, work, and what needs attention."""
