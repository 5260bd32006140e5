"""Drills at random moments: `python -m tests.drills`."""
