"""Machines of the owner's, lent to a lease."""
