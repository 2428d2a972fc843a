"""What the answers are read from: fields of untyped objects, events, the state of a pod, owners."""
