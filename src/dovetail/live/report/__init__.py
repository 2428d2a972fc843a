"""Writes conditions, events, queue statuses and metrics; audits device use."""
