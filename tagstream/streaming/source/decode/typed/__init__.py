"""Rows that come with their types: no text is parsed."""
