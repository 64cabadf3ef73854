"""Sends alarms to a person who is not at this computer. No other package sends any."""
