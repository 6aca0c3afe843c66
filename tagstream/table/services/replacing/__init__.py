"""Partitions whose rows go, or are replaced by others: replace commits without a plan."""
