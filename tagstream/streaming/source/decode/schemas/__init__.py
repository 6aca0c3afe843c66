"""Schemas that records bring: what rows they mean, and whether one has what the table lacks."""
