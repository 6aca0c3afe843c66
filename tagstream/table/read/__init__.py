"""Rows of a table as of a time, and which files a filter needs."""
