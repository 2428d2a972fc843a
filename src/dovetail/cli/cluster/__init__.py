"""Which cluster a command works on, and how it reads, follows and waits for it."""
