"""What is asked of a box: its caretaker, guard, queue of jobs, ownership, audit and environment."""
