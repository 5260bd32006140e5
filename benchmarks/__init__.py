"""Measurements that are run by hand: `python -m benchmarks`, and `make gpu`."""
