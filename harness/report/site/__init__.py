"""The report as one static site, which opens from a file: its data, its pages and the files beside them."""
