"""One job over several boxes: check that the boxes can reach each other, and launch on all of them or on none."""
