"""Right-sizing: how small a device the work of a window could have used, by what was measured of it."""
