"""What `dovetail doctor` knows: facts about a cluster in, findings with the next command out. Never asks a cluster."""
