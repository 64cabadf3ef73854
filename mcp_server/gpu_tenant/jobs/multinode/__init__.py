"""One job over several boxes: the check that they can reach each other, and the launch on all or none of them."""
