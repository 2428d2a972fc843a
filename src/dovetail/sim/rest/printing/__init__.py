"""What `kubectl get` prints: tables, columns and cells."""
