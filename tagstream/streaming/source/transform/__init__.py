"""Transformations of records by Spark, between decoding and the keys."""
