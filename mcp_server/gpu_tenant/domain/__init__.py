"""What a lease, a box, an offer, a permit and an error are, and pure decisions.

Frozen records that import nothing from our other packages.
"""
