"""Plans a roll-out over the nodes of a cluster in waves, with what each wave does to the work that runs."""
