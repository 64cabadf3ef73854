"""The environment in which a job runs, as the work tree asks for it."""
