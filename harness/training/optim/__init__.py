"""Schedules and an optimiser."""
