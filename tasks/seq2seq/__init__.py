"""Sequences that become other sequences: summaries and translations."""
