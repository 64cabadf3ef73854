"""Vast.ai: containers on other people's machines, and what they have cost."""
