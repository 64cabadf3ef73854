"""Tells a person who is elsewhere about alarms.

One sender for all alarms.
"""
