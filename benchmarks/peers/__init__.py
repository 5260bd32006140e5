"""Public implementations beside ours, with the same weights: one file per project or kind of layer."""
