"""An API server in memory, with the controllers a cluster cannot do without."""
