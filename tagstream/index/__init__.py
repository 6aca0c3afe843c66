"""Indexes of record keys other than the state index, behind one interface."""
