"""Files on this computer: the state directory, file names, patterns, secrets, and safe placement of files."""
