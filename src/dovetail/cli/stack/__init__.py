"""Commands about the whole GPU stack of a cluster: what a roll-out would do to the work that runs."""
