"""Seeded generators of everything the oracle is asked about. All chance comes from the `random.Random` given."""
