"""The live loops, on a virtual clock and servers in memory."""
