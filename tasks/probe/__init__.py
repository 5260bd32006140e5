"""Probes: generated tasks that separate sequence mixers within a minute."""
