"""What `dovetail explain` knows: reasons in words, and schemas of kinds."""
