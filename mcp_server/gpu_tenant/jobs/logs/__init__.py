"""A job's log, wherever it is by now: windows, search, and what was read already."""
