"""Any DataFrame: a stream that is PySpark code of the user's own, upserted into a table."""
