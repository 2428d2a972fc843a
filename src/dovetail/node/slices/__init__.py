"""What a node offers, as ResourceSlices and node labels; pure, and what writes them to the API server."""
