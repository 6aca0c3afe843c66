"""Table to index: plan, scan, load, verify, resume."""
