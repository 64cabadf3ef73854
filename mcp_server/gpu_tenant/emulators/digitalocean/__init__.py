"""DigitalOcean in a rehearsal: its API, and the words in which it answers."""
