"""Buckets of tables."""
