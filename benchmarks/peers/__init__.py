"""Public implementations of our layers, one file per project, which `benchmarks.baselines` times beside ours."""
