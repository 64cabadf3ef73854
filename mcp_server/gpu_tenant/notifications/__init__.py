"""Alarms told to a person who is elsewhere."""
