"""Dovetail gives every AI workload on Kubernetes exactly the GPU capacity it needs."""

__version__ = "0.1.0"
