"""The metadata table: its records, statistics and indexes, read and written."""
