"""The law: how a box is rented, bounded by its lease's terms, verified and ended.

Only `verify` makes permits, and only `teardown` destroys.
"""
