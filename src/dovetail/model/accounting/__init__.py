"""What GPUs were there, who held them, how busy they were, and what they cost: records with a beginning and an end."""
