"""One job over several boxes: whether they can reach each other, and its launch on all or none."""
