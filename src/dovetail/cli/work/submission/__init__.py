"""A job on its way to a cluster: what it requests, what would happen to it, its objects, how it goes on."""
