"""A job's log, wherever it is now: windows, search, and a copy of what has been read."""
