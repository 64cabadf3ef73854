"""What is written into a person's own files, and taken out again: the skill, the server, the watchdog."""
