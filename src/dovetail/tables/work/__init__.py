"""Work as people look at it: its line, its starts, what it holds."""
