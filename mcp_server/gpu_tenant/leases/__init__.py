"""How a box is rented, held to its terms, verified and ended: the law.

Only `verify` makes permits, and only `teardown` destroys.
"""
