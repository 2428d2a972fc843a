"""From a checked tree to closures, and their evaluation on a device."""
