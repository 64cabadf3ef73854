"""What our scripts on a box say: caretaker, guard, job queue, ownership, audit, environment.

All that is believed of a box passes here.
"""
