"""Errors when an existing table is loaded into the index."""

from __future__ import annotations

from tagstream.table.errors import TagstreamError


class IndexCoverageError(TagstreamError):
    """The index in the checkpoint does not describe the table as it is now."""


class BootstrapError(TagstreamError):
    """The index cannot be loaded from the table with the given choices, or a file of the load itself is damaged."""
