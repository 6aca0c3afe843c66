"""Simulated histories of a stream and its table: one process, no Spark, every fault at a place that a seed chooses."""
