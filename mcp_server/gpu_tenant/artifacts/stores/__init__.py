"""The owner's durable stores: what is copied there, and what they may be trusted to prove."""
