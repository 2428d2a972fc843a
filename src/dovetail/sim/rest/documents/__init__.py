"""What the server says about itself: discovery and OpenAPI."""
