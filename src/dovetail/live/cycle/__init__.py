"""The scheduling cycle: when it runs, what it asks, and what happens when it fails."""
