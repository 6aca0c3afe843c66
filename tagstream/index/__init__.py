"""Indexes of record keys other than the state index, with one interface."""
