"""RunPod in a rehearsal: its API, its account, and the words in which it answers."""
