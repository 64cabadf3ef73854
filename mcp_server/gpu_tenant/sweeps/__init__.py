"""Which cell of a grid is on which box, and what became of it.

One command over many leases, so it stands above them.
"""
