"""List and watch: lines into structs, in order, across lost connections."""
