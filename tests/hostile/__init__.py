"""One tenant does all that its rights allow to keep the others from scheduling; the others must not notice.

A campaign runs on a real API server: honest tenants work, a user with the `edit` role in one namespace attacks, and a
checker of its own reads the history of every honest pod.
"""
