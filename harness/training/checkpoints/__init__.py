"""Files of weights and checkpoints: written, chosen, checked, read."""
