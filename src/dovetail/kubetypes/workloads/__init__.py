"""Kinds that own pods: Job, JobSet, LeaderWorkerSet, Kubeflow, Ray, PodGroup."""
