"""Tests of the key-group store."""
