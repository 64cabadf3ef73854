"""The agents' hosts: where each keeps skills and servers, and how its files are edited in place."""
