"""What a lease, a box, an offer, a permit and an error are, and pure decisions.

Nothing here imports our other packages.
"""
