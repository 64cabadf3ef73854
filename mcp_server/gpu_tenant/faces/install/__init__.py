"""Writes into a person's own files, and can undo that: the skill, the server, the watchdog."""
