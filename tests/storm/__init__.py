"""Whole leases against the rehearsals under faults, deaths and strangers: `make storm LEASES=200`."""
