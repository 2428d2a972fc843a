"""What the live scheduler needs from outside: an API server, a clock, metrics, traces, and named failures."""
