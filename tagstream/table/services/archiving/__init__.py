"""Archiving: completed actions leave the active timeline for the archive, in Hudi's order and within its limits."""
