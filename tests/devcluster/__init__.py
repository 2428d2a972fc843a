"""A local control plane and its real node."""
