"""What others still need of a table, as pure functions."""
