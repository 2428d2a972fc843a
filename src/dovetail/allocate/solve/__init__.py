"""The search: from one request alone to groups combined at the lowest cost."""
