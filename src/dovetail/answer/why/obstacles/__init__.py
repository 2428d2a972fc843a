"""What keeps one pod off every node, each thing apart, and the nearest way for it to start."""
