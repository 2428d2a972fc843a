"""Health checks of `dovetail doctor`: gathers facts about a cluster, returns findings with the next command."""
