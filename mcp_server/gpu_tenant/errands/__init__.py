"""Errands: one call that takes a command all the way, from the smoke test to the receipt.

An errand does each step by an operation of `service.py` (a verb), and in no other way. The next step is derived
from the ledger each time, so any process can continue an errand.
"""
