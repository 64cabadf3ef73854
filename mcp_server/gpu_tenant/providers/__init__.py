"""What each platform rents, and how its API answers: one folder a platform.

A folder holds the connector, its client, and what the platform bills.
"""
