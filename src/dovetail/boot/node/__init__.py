"""The node agent as a process: what each mode runs, and how its parts are put together."""
