"""Objects as rows of the HTTP interface: the fields of the tables as structs, not as text for a terminal."""
