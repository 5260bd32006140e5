"""Loggers, profilers, artifacts and estimates of the duration."""
