"""A copy of a cluster that questions may change on trial: its objects, its World, and what a change amounts to."""
