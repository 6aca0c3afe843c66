"""Measurements: generators, peers and reports."""
