"""What allocation sees of one node."""
