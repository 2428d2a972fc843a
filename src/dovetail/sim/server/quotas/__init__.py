"""ResourceQuotas of the in-memory API server: what objects are charged, what namespaces use, what is refused."""
