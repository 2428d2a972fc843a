"""GPUs as people look at them: tiles, types, holders."""
