"""The one mutable picture of the cluster: changed only by events, tried out on checkpoints, never guessed."""
