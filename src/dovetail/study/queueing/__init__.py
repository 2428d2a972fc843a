"""Studies of queues: lists of jobs in time, on a fleet, under a policy; what they waited for and what they used."""
