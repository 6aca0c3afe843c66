"""Flags and properties files to the options of one run."""
