"""Installs the skill, the server and the watchdog by changing a person's own files, and can undo this."""
