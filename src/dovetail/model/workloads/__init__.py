"""Objects that own pods, as far as gangs are read off them: `owners` are the structs, `reading` makes gangs of them."""
