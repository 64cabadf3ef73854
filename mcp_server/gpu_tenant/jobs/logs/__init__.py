"""A job's log, on the box or on this computer: read it in windows, search it, and keep a copy of what was read."""
