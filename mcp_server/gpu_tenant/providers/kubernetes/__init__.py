"""Kubernetes as both its connector and the way into a pod need it: the client, the order, what is seen."""
