"""Questions put to the engine, answered by asking it again."""
