"""Recorded answers of one commit, to be compared with those of another: `python -m tests.goldens`."""
