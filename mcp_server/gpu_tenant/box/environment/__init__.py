"""The Python environment in which a job runs, with the packages that the work tree asks for."""
