"""Kubernetes, for both its connector and the way into a pod: the client, the Job, and how its state is read."""
