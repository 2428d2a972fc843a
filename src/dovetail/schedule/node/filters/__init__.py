"""What rules a node out beyond its own state: other pods, volumes, nominations, ownership."""
