"""Recorded questions from files, answered by the engine: scenarios, worlds, selector cases."""
