"""Tests of streaming/."""
