"""Summaries of long documents by an encoder-decoder."""
