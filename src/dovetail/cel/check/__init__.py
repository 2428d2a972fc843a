"""Types: declarations, unification, and what a checked expression may not contain."""
