"""Commands about the GPU stack: what runs, and what an upgrade would do."""
