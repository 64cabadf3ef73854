"""Whole errands under drawn faults."""
