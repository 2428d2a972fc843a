"""What the documents say: commands that run, links that lead somewhere."""
