"""Overrides -> configuration -> cell -> task and model."""
