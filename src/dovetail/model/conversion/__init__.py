"""Other schedulers' objects into ours, with an account of every field."""
