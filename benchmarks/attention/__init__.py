"""Goals of the core algorithms: `python -m benchmarks.attention`."""
