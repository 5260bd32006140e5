"""Records -> tables, figures and statistics."""
