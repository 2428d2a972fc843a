"""Text to syntax tree: tokens, literals, macros."""
