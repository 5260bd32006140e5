"""Probes: generated tasks that tell sequence mixers apart in a minute."""
