"""Vast.ai in a rehearsal: its API, its market, and the words in which it answers."""
