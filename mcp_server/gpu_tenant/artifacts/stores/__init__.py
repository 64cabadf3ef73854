"""The owner's durable stores: which they are, how files are copied there, and what a store can prove."""
