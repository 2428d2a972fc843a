"""What happened to GPUs: a store of intervals in SQLite or PostgreSQL, and the recorder that feeds it from the API."""
