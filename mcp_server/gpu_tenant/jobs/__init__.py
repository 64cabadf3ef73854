"""What runs on a box, how far it is, and why it ended.

It needs a box that is there, and nothing of a lease's law.
"""
