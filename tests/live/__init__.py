"""Loops, on a clock that is told the time and servers in memory."""
