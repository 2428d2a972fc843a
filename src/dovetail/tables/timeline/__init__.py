"""What happened in a cluster, newest first."""
