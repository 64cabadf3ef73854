"""Platforms without an API: a person rents, stops and ends a box in their console."""
