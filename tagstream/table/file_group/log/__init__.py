"""Hudi log files: blocks, delete records, reading and writing."""
