"""Tables as pages: sections, blocks, sentences."""
