"""The report as a static site that opens without a server: its data, its pages and the files they link."""
