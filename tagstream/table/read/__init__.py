"""Read the rows of a table as of a time, and find the files that a filter needs."""
