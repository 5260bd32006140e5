"""Language modelling: corpora of long documents, tokenizers, windows of a token stream, perplexities."""
