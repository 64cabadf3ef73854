"""Durable stores of the owner's: what is copied there, and what may be believed of them."""
