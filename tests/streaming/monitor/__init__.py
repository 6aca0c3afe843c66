"""Tests of streaming/monitor/."""
