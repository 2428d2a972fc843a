"""Where the dashboard's objects come from: a cluster that is watched, or a snapshot."""
