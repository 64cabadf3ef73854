"""The job of the demo: a small, real and resumable training run, and its data."""

from pathlib import Path

JOB = Path(__file__).parent / "job"
"""The work tree that the demo pushes."""
