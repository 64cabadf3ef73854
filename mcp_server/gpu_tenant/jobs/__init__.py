"""A job, from its launch to why it ended: smoke, monitor, progress, metrics, samples, cost."""
