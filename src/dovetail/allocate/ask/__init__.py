"""What claims ask for: requests, constraints, and the demand once options are fixed."""
