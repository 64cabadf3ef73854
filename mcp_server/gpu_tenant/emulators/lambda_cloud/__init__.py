"""Lambda Cloud in a rehearsal."""
