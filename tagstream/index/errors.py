"""Errors of the HBASE index."""

from __future__ import annotations

from tagstream.table.errors import TagstreamError


class HbaseError(TagstreamError):
    """Base class of the errors about HBase."""


class HbaseUnavailableError(HbaseError):
    """A request to HBase failed in all tries."""


class HbaseTableError(HbaseError):
    """The HBase table is missing, or was not made for an index."""


class HbaseRowError(HbaseError):
    """A row of the HBase table is not a location, or its location is not reliable."""
