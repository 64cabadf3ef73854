"""Copies files between this computer and a box: push, collect, snapshot, prune, restore.

`formats` tests whether a copy loads. `stores` holds copies that outlive this computer.
"""
