"""Dashboards for Grafana as data: panels with their queries, laid out and written as Grafana's JSON."""
