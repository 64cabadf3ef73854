"""Speaks with our scripts on a box: caretaker, guard, job queue, ownership, audit, environment.

Everything that the program believes about a box passes through this package.
"""
