"""Masked language modelling: pre-training of encoders."""
