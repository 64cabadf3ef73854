"""Files on this computer: the state directory, paths, patterns, secrets, and durable placement."""
