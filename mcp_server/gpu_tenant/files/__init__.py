"""Files on this computer: the state directory, file names, patterns, secrets, and how files are put in place safely."""
