"""Everything we ask of a box: its caretaker, guard, job queue, ownership, audit and environment."""
