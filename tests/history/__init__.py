"""History: the store on both databases, the recorder, and what happens when either is killed."""
