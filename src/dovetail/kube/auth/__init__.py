"""Our identity at the API server, and reviews of the identity of others."""
