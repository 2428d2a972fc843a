"""Commands that ask the engine: why, when, what-if, capacity."""
