"""Tests of what a batch is and what is kept of it."""
