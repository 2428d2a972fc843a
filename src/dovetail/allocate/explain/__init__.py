"""What an allocation costs and why one is refused, in named terms with numbers."""
