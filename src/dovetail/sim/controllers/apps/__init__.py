"""The controllers of apps/v1: Deployment, ReplicaSet, StatefulSet, DaemonSet."""
