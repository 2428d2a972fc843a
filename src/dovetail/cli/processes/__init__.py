"""Commands that are processes of a cluster: the scheduler, the node agent, the exporter, the dashboard."""
