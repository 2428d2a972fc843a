"""Faults on purpose: a proxy that breaks requests, a recorder of every revision, and a checker that reads them all.

Nothing here but the campaign's start-up code knows the scheduler's package; the checker knows nothing of it at all.
"""
