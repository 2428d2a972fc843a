"""Stories about the metrics of devices."""
