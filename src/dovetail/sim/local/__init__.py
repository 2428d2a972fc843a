"""The local cluster of the command line: objects in a state directory, one turn at a time."""
