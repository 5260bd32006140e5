"""The order of training examples."""
