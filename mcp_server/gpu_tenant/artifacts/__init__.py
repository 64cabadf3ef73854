"""What a job leaves, on its way home: push, collect, snapshot, prune, restore.

Here are copies and evidence: `formats` says whether a file loads, `stores` what outlives this computer.
"""
