"""Sequence to sequence: summaries and translations."""
