"""What Dovetail tells about itself: metrics."""
