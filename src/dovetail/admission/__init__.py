"""The rules objects obey before they are stored, as Kubernetes 1.37 applies them with default gates."""
