"""Seeded generators of everything the oracle is asked about. Given a `random.Random`, never another source of chance."""
