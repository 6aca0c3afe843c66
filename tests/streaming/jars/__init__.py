"""Tests of `streaming/jars/`."""
