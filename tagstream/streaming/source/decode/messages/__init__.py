"""Which messages are events of the stream's rows: not those of other tables, and not those of no row."""
