"""Searches settings of the engine's policy by simulation, and judges them on jobs that the search never saw."""
