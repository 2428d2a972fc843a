"""Who has to yield to whom, tried on a checkpoint before anybody does."""
