"""Rows into file groups, and the commit that makes them visible."""
