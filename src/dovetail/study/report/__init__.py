"""Pages about studies: what was compared, drawn by us as SVG, in one file that loads nothing."""
