"""What `make site` needs from the records: pages with cards."""
