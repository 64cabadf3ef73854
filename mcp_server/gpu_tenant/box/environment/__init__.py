"""The environment that a job runs in, as the work tree asks for it."""
