"""Rows out of slices: base file and logs merged, whole snapshots, single keys."""
