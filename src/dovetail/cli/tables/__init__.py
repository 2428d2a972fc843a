"""The tables people read: columns, rows, tiles."""
