"""The parts that make a node with a driver a GPU node: which run where, what is missing, and the next step."""
