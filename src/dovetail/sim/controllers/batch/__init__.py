"""The controllers of batch/v1: Job and CronJob."""
