"""What runs leave behind: the record, the run directory, timings; and the published numbers."""
