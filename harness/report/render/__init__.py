"""A table in Markdown, LaTeX, CSV and on the terminal."""
