"""This computer, as a box."""
