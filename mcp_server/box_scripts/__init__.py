"""The parts of the scripts that run on a box; `make scripts` joins them into one file each, in `scripts/`.

A folder here is a script there. Its `__init__.py` says in which order its parts are joined, and `build.py`
by which rules. Parts run on Python 3.7 with the standard library alone, like the scripts themselves.
"""
