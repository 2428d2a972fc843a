"""Scheduling scenarios: small clusters as one JSON line each, put to the engine, and what became of every pod."""
