"""Alerts and recorded series as data, one module per subject, and the file that Prometheus reads."""
