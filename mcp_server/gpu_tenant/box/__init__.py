"""Communicates with our scripts on a box: caretaker, guard, job queue, ownership, audit, environment.

All that the program knows from a box itself comes through this package.
"""
