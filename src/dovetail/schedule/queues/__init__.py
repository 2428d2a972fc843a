"""What every queue is due, what it uses, and whose turn it is."""
