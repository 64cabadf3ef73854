"""The parts of the scripts that run on a box; `make scripts` joins them into one file each, in `scripts/`.

Each folder here becomes one script there. Its `__init__.py` lists its parts in the order in which they are joined. The
rules are in `build.py`. Like the scripts, the parts run on Python 3.7 with the standard library alone.
"""
