"""Quotas, fair shares and charges of queues, prices of pods, and the order of jobs."""
