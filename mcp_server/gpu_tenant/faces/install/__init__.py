"""Writes the skill, the server and the watchdog into a person's own files, and can undo that."""
