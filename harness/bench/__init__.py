"""do=bench: time and memory of layers, recipes and generation against length."""
