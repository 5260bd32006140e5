"""Machine translation by an encoder-decoder."""
