"""The files of a run: the record and the run directory; and the published numbers."""
