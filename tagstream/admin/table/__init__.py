"""Commands on a table: rows, commits, validation."""
