"""From records to the scores of rows and columns, and their comparisons."""
