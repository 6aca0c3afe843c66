"""Tests of table/history/."""
