"""Public implementations of our layers, one file per project: what `benchmarks.baselines` measures ours beside."""
