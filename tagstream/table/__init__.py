"""Hudi's table format in Python: names, files, timeline and commits; needs no Spark."""
