"""Public implementations of our layers, one file a project: what `benchmarks.baselines` measures ours beside."""
