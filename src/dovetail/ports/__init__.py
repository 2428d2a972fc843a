"""The few things loops ask of the outside: an API server, a clock, a meter, and how asking can fail."""
