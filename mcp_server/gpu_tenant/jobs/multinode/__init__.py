"""One job over several boxes: whether they can talk, and its launch on all or none."""
