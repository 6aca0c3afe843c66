"""From an existing table to the index: whether the index covers the table, and (later) loading what it does not."""
