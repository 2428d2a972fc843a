"""Lists and watches, and what they select."""
