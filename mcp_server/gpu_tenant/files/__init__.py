"""Files on this computer: state directory, paths, patterns, secrets, safe placement."""
