"""Sweeps: which cell of a grid is on which box, and what became of it.

A sweep is one command over many leases, so this package is above leases.
"""
