"""Compaction of a table: the logs of file slices merged into new base files, as a plan and its execution."""
