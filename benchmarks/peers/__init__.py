"""Public implementations of our layers, one file a project: what `benchmarks.baselines` measures ours beside.

`PAIRS` of a file are names of rows, and what makes each: from the folder of the clones, or None, to a LayerPair. It
raises AbsentError without the clone, ImportError without a package.
"""
