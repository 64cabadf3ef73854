"""A Slurm cluster: each box is one job's allocation."""
