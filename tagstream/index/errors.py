"""Errors of the HBASE index."""

from __future__ import annotations

from tagstream.table.errors import TagstreamError


class HbaseError(TagstreamError):
    """Root of the errors about HBase."""


class HbaseUnavailableError(HbaseError):
    """HBase did not do what it was asked for, after all tries."""


class HbaseTableError(HbaseError):
    """The HBase table is missing, or not made for an index."""


class HbaseRowError(HbaseError):
    """A row of the HBase table is no location, or one that cannot be trusted."""
