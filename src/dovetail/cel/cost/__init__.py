"""What evaluating costs, estimated before and charged during evaluation, as Kubernetes does it."""
