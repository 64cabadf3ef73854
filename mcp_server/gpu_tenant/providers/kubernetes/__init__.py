"""Kubernetes, for its connector and for the way into a pod: the client, the Job, and how its state is read."""
