"""Loggers, artifacts and estimates of the duration."""
