"""Who asks the dashboard, what they may see, and which requests are refused before anything is looked at."""
