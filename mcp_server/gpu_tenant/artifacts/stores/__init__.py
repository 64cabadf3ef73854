"""The owner's durable stores: what is copied there, and what a store may be trusted to prove."""
