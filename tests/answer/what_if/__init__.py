"""What changes would do, and whether that is what happens when they are made."""
