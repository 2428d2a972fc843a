"""The compatibility rows that are shipped, as files: see docs/reference/stack.md."""
