"""Bytes on this computer: the state directory, paths, patterns, secrets, and how a file lands for good."""
