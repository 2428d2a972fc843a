"""Container Device Interface: which files, device nodes and variables a container gets, and the files that say so."""
