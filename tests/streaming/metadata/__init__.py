"""Tests of streaming/metadata."""
