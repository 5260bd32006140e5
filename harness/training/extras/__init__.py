"""Loggers, profilers, artifacts, and what is said before and after a run."""
