"""A lease, from its offers to the proof of its end: the verbs, and the law of the teardown."""
