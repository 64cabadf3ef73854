"""Google Compute Engine in a rehearsal: its API, and the words in which it answers."""
