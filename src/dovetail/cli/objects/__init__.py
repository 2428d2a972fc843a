"""Objects of files: read, checked, written all or none; devices for expressions."""
