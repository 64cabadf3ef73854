"""Google Compute Engine, as its one connector needs it: calls through the official client, and what is sold."""
