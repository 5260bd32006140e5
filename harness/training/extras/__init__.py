"""Loggers, profilers, artifacts, baselines and estimates of the duration."""
