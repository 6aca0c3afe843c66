"""Make the index and the table consistent before a query starts."""
