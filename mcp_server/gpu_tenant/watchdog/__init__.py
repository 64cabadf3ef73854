"""Looks at every lease when nobody else does, and holds it to its terms."""
