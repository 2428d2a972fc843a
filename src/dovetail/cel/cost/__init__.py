"""What evaluation costs: estimated before it, charged during it, as Kubernetes does."""
