"""From the objects that own pods to gangs, and from a set of objects to the World."""
