"""Index and table brought together before a query starts, whatever happened to either."""
