"""One pod and one node: does it fit, on which devices, and what would it cost others."""
