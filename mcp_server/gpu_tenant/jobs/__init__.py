"""What runs on a box, how far it has come, and why it ended.

This package needs a box to work on. It knows nothing of a lease's law.
"""
