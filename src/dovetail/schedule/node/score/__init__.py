"""What a placement costs, as named terms."""
