"""The dashboard as a process: how it listens, and how it is started, found and ended beside an embedded cluster."""
