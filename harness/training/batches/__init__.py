"""Training batches: their order and their division."""
