"""What commands show beside our tables: the live picture, followed rows, the server's tables."""
