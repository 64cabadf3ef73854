"""What runs on a box, how far it has come, and why it ended.

This package needs a box to work on. The rules by which a lease may end are not its concern.
"""
