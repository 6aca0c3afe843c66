"""Cleaning: files of old slices are deleted, in Hudi's form."""
