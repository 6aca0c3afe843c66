"""Avro and Arrow schemas of a table, and rows converted to them."""
