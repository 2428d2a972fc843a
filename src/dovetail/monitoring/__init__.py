"""What Prometheus, Alertmanager and Grafana need to watch a GPU cluster: rules, dashboards, counters, routes."""
