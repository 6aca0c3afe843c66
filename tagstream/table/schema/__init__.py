"""Avro and Arrow schemas of a table, and rows brought to them."""
