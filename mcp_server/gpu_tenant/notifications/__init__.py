"""Sends alarms to a person who is elsewhere.

All alarms are sent from here.
"""
