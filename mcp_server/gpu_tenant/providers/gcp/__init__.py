"""Google Compute Engine: its connector, calls through Google's official client, and what is sold."""
