"""What could be changed about a pod that waits, one module per kind of rule. Proposals only; none is tried here."""
