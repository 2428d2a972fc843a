"""Files of other people read within bounds, and private files of the user."""
