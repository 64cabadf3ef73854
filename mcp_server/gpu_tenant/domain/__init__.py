"""What a lease, a box, a job, an offer, a permit and an error are, and the decisions that need nothing else."""
