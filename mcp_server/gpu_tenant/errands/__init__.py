"""Errands: the whole way of one command in one call, from the smoke test to the receipt.

An errand is made of the verbs of `service.py` and adds no other way of doing any of them. The next step is derived
from the ledger each time, so any process can continue an errand.
"""
