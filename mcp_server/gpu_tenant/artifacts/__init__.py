"""Brings home what a job leaves: push, collect, snapshot, prune, restore.

`formats` says whether a copy loads. `stores` holds copies that outlive this computer.
"""
