"""Settings of the table package's tests."""

from __future__ import annotations

from hypothesis import settings

# No deadline per example: on a busy machine it fails for the machine's sake.
settings.register_profile("table", deadline=None)
settings.load_profile("table")
